// eval ppl, eval kld: how well a model predicts a text, and how far it is from another model.

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "command.h"
#include "embedded_data.h"
#include "engine/cache_loss.h"
#include "engine/step_runner.h"
#include "lora_options.h"
#include "model_options.h"
#include "results.h"
#include "sample/log_probability.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr std::int64_t kRowTokens = 2048;

struct EvalOptions {
  ModelOptions model;
  LoraOptions lora;
  std::string text;
  std::int64_t rows = 0;
  bool bos = false;
  bool json = false;

  EvalOptions() {
    model.context_help = "tokens per row";
    model.context_default = "2048";
  }
  template <class V>
  void visit(V&& v) {
    v.group("Text");
    v(text, {"--text", "FILE", "text to predict; tokenized as a whole, then cut into rows"});
    v(rows, {"--rows", "N", "use only the first N rows", "all whole rows"});
    v(bos, {"--bos", "", "put BOS before each row (always done if the model needs it)"});
    v(json, {"--json", "", "print JSON, which is also the default"});
    model.visit(v);
    lora.visit(v);
  }

  std::int64_t row_tokens() const { return model.context > 0 ? model.context : kRowTokens; }
  SessionOptions session_options() const {
    if (text.empty()) fail_usage("--text FILE is missing: the text to predict");
    if (rows < 0) fail_usage("--rows: {} should be 1 or more", rows);
    if (row_tokens() < 2) fail_usage("--ctx: a row needs 2 tokens or more");
    SessionOptions options = model.session_options();
    options.context = row_tokens();
    options.logits = SessionLogits::kEveryToken;
    return options;
  }
};

// The rows of the text as token ids, all of the same length.
struct EvalRows {
  std::vector<std::vector<std::int32_t>> rows;
  bool with_bos = false;
};

bool needs_bos(const std::string& architecture) {
  const Json list = parse_json(embedded_eval_bos(), "archs/eval/bos.json").at("needs_bos");
  return std::find(list.begin(), list.end(), architecture) != list.end();
}

EvalRows read_rows(const EvalOptions& options, const ModelSession& session) {
  const std::string text = read_file(options.text);
  const std::vector<std::int32_t> ids = session.tokenizer().encode(text, {.add_special = false});
  const std::optional<int> bos = session.tokenizer().bos_id();
  EvalRows result;
  result.with_bos = options.bos || needs_bos(session.model().spec().architecture);
  if (result.with_bos && !bos) {
    fail(ErrorCode::kInvalidArgument, "--bos: the tokenizer of {} has no BOS token",
         options.model.model);
  }
  const auto length = static_cast<std::size_t>(options.row_tokens());
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

const char* bos_note(const EvalRows& rows, const EvalOptions& options) {
  if (!rows.with_bos) return "";
  return options.bos ? ", BOS before each" : ", BOS before each, as this model needs it";
}

// Runs rows through one model, a few positions at a time.
class RowReader {
 public:
  explicit RowReader(ModelSession& session, AdapterMix adapters = {})
      : session_(session),
        runner_(session),
        sequence_(session.new_sequence()),
        adapters_(std::move(adapters)) {}

  void start(const std::vector<std::int32_t>& ids) {
    session_.check_ids(ids);
    runner_.truncate(sequence_, 0);
    sequence_.ids = ids;
    sequence_.reach = static_cast<std::int64_t>(ids.size());
  }
  // Returns the logits of the next `count` positions.
  StepLogits next(std::int64_t count) {
    const StepItem item{
        .sequence = &sequence_, .count = count, .logits = LogitRows::kAll, .adapters = &adapters_};
    return runner_.run({&item, 1});
  }

 private:
  ModelSession& session_;
  StepRunner runner_;
  Sequence sequence_;
  AdapterMix adapters_;
};

// Sums −ln p of the tokens that follow each position. Row r of `logits` belongs to position first +
// r.
struct Surprise {
  double nats = 0;
  std::int64_t tokens = 0;

  void add(const StepLogits& logits, const std::vector<std::int32_t>& ids, std::int64_t first) {
    const std::int64_t known = static_cast<std::int64_t>(ids.size()) - 1;
    for (std::int64_t r = 0; r < logits.rows() && first + r < known; ++r) {
      const auto next = static_cast<std::size_t>(first + r + 1);
      nats -= log_probability(logits.row(r), ids[next]);
      ++tokens;
    }
  }
  void add(const Surprise& other) {
    nats += other.nats;
    tokens += other.tokens;
  }
  double perplexity() const { return std::exp(nats / static_cast<double>(tokens)); }
};

// What the chosen cache type does to the scores of attention, for the report; null where none was
// chosen or nothing is lost.
Json cache_loss_of(ModelSession& session, const SessionOptions& options) {
  if (!options.cache || !may_lose(options.cache->k)) return nullptr;
  const std::array types{options.cache->k};
  return measure_cache_loss(session, types).front().score;
}

void eval_ppl(EvalOptions& options) {
  SessionOptions session_options = options.session_options();
  options.lora.plan(session_options);
  const std::unique_ptr<ModelSession> session = load_session(session_options, CacheCheck::kSkip);
  const Json cache_loss = cache_loss_of(*session, session_options);
  const EvalRows rows = read_rows(options, *session);
  const std::int64_t length = options.row_tokens();
  RowReader reader(*session, options.lora.load(*session));
  Progress progress("eval", length * static_cast<std::int64_t>(rows.rows.size()),
                    Progress::Unit::kTokens);
  Surprise total;
  Json row_list = Json::array();
  for (const std::vector<std::int32_t>& ids : rows.rows) {
    reader.start(ids);
    Surprise of_row;
    for (std::int64_t first = 0; first < length; first += session->step_tokens()) {
      check_interrupt();
      const std::int64_t count = std::min(session->step_tokens(), length - first);
      of_row.add(reader.next(count), ids, first);
      progress.advance(count);
    }
    total.add(of_row);
    row_list.push_back(of_row.perplexity());
  }
  log_info("perplexity {:.4f} over {} tokens ({} rows{})", total.perplexity(), total.tokens,
           rows.rows.size(), bos_note(rows, options));
  write_json({{"ppl", total.perplexity()},
              {"tokens", total.tokens},
              {"rows", std::move(row_list)},
              {"bos", rows.with_bos},
              {"cache_loss", cache_loss}});
}

struct KldOptions {
  EvalOptions eval;
  std::string base;
  std::string base_cache;

  template <class V>
  void visit(V&& v) {
    v.group("Base");
    v(base, {"--base", "DIR", "the model to compare with, such as the unquantized one"});
    v(base_cache, {"--base-cache", "TYPE", "KV cache type of that model", "as --cache"});
    eval.visit(v);
  }
};

// The sums of a comparison.
struct Distance {
  double kld = 0;
  std::int64_t same_top = 0;
  std::int64_t positions = 0;
  Surprise surprise;
  Surprise base_surprise;

  void add(const StepLogits& base, const StepLogits& other) {
    for (std::int64_t r = 0; r < base.rows(); ++r) {
      kld += kl_divergence(base.row(r), other.row(r));
      same_top += top_logit(base.row(r)).id == top_logit(other.row(r)).id ? 1 : 0;
      ++positions;
    }
  }
  void add(const Distance& other) {
    kld += other.kld;
    same_top += other.same_top;
    positions += other.positions;
    surprise.add(other.surprise);
    base_surprise.add(other.base_surprise);
  }
  Json json() const {
    const auto n = static_cast<double>(positions);
    return {{"kld", kld / n},
            {"top1", static_cast<double>(same_top) / n},
            {"ppl", surprise.perplexity()},
            {"base_ppl", base_surprise.perplexity()}};
  }
};

void check_comparable(const ModelSession& base, const ModelSession& other) {
  if (base.vocab() != other.vocab()) {
    fail(ErrorCode::kInvalidArgument,
         "the models have {} and {} tokens, but a comparison needs the same vocabulary",
         base.vocab(), other.vocab());
  }
}

void eval_kld(KldOptions& options) {
  const EvalOptions& eval = options.eval;
  if (options.base.empty()) fail_usage("--base DIR is missing: the model to compare with");
  SessionOptions session_options = eval.session_options();
  eval.lora.plan(session_options);
  const std::unique_ptr<ModelSession> session = load_session(session_options, CacheCheck::kSkip);
  const Json cache_loss = cache_loss_of(*session, session_options);
  session_options.model = options.base;
  if (!options.base_cache.empty()) session_options.cache = cache_types_of(options.base_cache);
  session_options.adapter_bytes = 0;
  const std::unique_ptr<ModelSession> base = load_session(session_options, CacheCheck::kSkip);
  check_comparable(*base, *session);
  const EvalRows rows = read_rows(eval, *session);
  const std::int64_t length = eval.row_tokens();
  const std::int64_t step = std::min(session->step_tokens(), base->step_tokens());
  RowReader reader(*session, eval.lora.load(*session));
  RowReader base_reader(*base);
  Progress progress("eval", length * static_cast<std::int64_t>(rows.rows.size()),
                    Progress::Unit::kTokens);
  Distance total;
  Json row_list = Json::array();
  for (const std::vector<std::int32_t>& ids : rows.rows) {
    reader.start(ids);
    base_reader.start(ids);
    Distance of_row;
    for (std::int64_t first = 0; first < length; first += step) {
      check_interrupt();
      const std::int64_t count = std::min(step, length - first);
      const StepLogits base_logits = base_reader.next(count);
      const StepLogits logits = reader.next(count);
      of_row.add(base_logits, logits);
      of_row.base_surprise.add(base_logits, ids, first);
      of_row.surprise.add(logits, ids, first);
      progress.advance(count);
    }
    total.add(of_row);
    row_list.push_back(of_row.json());
  }
  Json document = total.json();
  document["tokens"] = total.positions;
  document["rows"] = std::move(row_list);
  document["bos"] = rows.with_bos;
  document["cache_loss"] = cache_loss;
  log_info(
      "KL divergence {:.6f}, top-1 agreement {:.4f}, perplexity {:.4f}, base perplexity {:.4f} ({} "
      "rows{})",
      document["kld"].get<double>(), document["top1"].get<double>(), document["ppl"].get<double>(),
      document["base_ppl"].get<double>(), rows.rows.size(), bos_note(rows, eval));
  write_json(document);
}

}  // namespace

Command eval_ppl_command() {
  return make_command<EvalOptions>(
      {"eval ppl",
       "-m DIR --text FILE [--rows N] [--ctx N]",
       "Measure the perplexity of a text",
       {{"Perplexity over the first 20 rows of 2048 tokens",
         "bitloom eval ppl -m DIR --text test.txt --rows 20"},
        {"With 4-bit keys and values", "bitloom eval ppl -m DIR --text test.txt --cache q4"}}},
      eval_ppl);
}

Command eval_kld_command() {
  return make_command<KldOptions>(
      {"eval kld",
       "-m DIR --base DIR --text FILE [--rows N] [--ctx N]",
       "Compare with a base model: KL divergence, top-1 agreement, perplexities",
       {{"How far a quantized model is from the one that it was made of",
         "bitloom eval kld -m QUANTIZED --base ORIGINAL --text test.txt --rows 20"},
        {"What a quantized cache alone costs",
         "bitloom eval kld -m DIR --base DIR --cache q4 --base-cache fp16 --text test.txt"}}},
      eval_kld);
}

}  // namespace bl
