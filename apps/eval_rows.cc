#include "eval_rows.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>

#include "base/file.h"
#include "base/json.h"
#include "embedded_data.h"
#include "sample/log_probability.h"
#include "usage_error.h"

namespace bl {
namespace {

bool needs_bos(const std::string& architecture) {
  const Json list = parse_json(embedded_eval_bos(), "archs/eval/bos.json").at("needs_bos");
  return std::find(list.begin(), list.end(), architecture) != list.end();
}

}  // namespace

SessionOptions EvalText::session_options(const ModelOptions& model) const {
  if (text.empty()) fail_usage("--text FILE is missing: the text to predict");
  if (rows < 0) fail_usage("--rows: {} should be 1 or more", rows);
  if (row_tokens(model) < 2) fail_usage("--ctx: a row needs 2 tokens or more");
  SessionOptions options = model.session_options();
  options.context = row_tokens(model);
  options.logits = SessionLogits::kEveryToken;
  return options;
}

std::int64_t row_tokens(const ModelOptions& model) {
  constexpr std::int64_t kRowTokens = 2048;
  return model.context > 0 ? model.context : kRowTokens;
}

EvalRows read_rows(const EvalText& options, std::int64_t row_length, const ModelSession& session) {
  const std::string text = read_file(options.text);
  const std::vector<std::int32_t> ids = session.tokenizer().encode(text, {.add_special = false});
  const std::optional<int> bos = session.tokenizer().bos_id();
  EvalRows result;
  result.with_bos = options.bos || needs_bos(session.model().spec().architecture);
  if (result.with_bos && !bos) {
    fail(ErrorCode::kInvalidArgument, "--bos: the tokenizer of the model has no BOS token");
  }
  const auto length = static_cast<std::size_t>(row_length);
  const std::size_t fresh = result.with_bos ? length - 1 : length;
  std::size_t count = ids.size() / fresh;
  if (options.rows > 0) {
    if (static_cast<std::size_t>(options.rows) > count) {
      fail(ErrorCode::kInvalidArgument,
           "{} has {} tokens, which make {} whole rows of {}; --rows asks for {}", options.text,
           ids.size(), count, length, options.rows);
    }
    count = static_cast<std::size_t>(options.rows);
  }
  if (count == 0) {
    fail(ErrorCode::kInvalidArgument,
         "{} has {} tokens, not one whole row of {}; use a smaller --ctx", options.text, ids.size(),
         length);
  }
  for (std::size_t row = 0; row < count; ++row) {
    std::vector<std::int32_t>& out = result.rows.emplace_back();
    if (result.with_bos) out.push_back(*bos);
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(row * fresh);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(fresh));
  }
  return result;
}

const char* bos_note(const EvalRows& rows, const EvalText& text) {
  if (!rows.with_bos) return "";
  return text.bos ? ", BOS before each" : ", BOS before each, as this model needs it";
}

EvalThreads::EvalThreads(ModelSession& model) : pool_(model.backend().threads()) {
  if (pool_ == nullptr) pool_ = &own_.emplace();
}

void EvalThreads::for_rows(std::int64_t rows, const std::function<void(std::int64_t)>& body) {
  std::mutex mutex;
  std::exception_ptr error;  // bodies of the pool must not throw, but logits may be NaN
  pool_->parallel_for(static_cast<long>(rows), 4, [&](long begin, long end) {
    try {
      for (long r = begin; r < end; ++r) body(r);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  });
  if (error != nullptr) std::rethrow_exception(error);
}

void Surprise::add(const StepLogits& logits, const std::vector<std::int32_t>& ids,
                   std::int64_t first, EvalThreads& threads) {
  const std::int64_t known = std::ssize(ids) - 1 - first;
  const std::int64_t rows = std::clamp<std::int64_t>(known, 0, logits.rows());
  const std::vector<double> log_p = threads.map<double>(rows, [&](std::int64_t r) {
    return log_probability(logits.row(r), ids[static_cast<std::size_t>(first + r + 1)]);
  });
  for (const double value : log_p) nats -= value;
  tokens += rows;
}

double Surprise::perplexity() const { return std::exp(nats / static_cast<double>(tokens)); }

}  // namespace bl
