#include "engine/generator.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/interrupt.h"
#include "engine/stop_filter.h"
#include "sample/sampler_chain.h"
#include "text/text_stream.h"

namespace bl {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Generated tokens on their way to text.
class AnswerText {
 public:
  AnswerText(const Tokenizer& tokenizer, const GenerationRequest& request,
             const std::function<bool(std::string_view)>& on_text)
      : stream_(tokenizer, true), filter_(request.stops), on_text_(on_text) {
    if (!request.continues_prompt) return;
    // Decoders treat the beginning of a text differently; beyond that they look back no further
    // than one character's bytes.
    constexpr std::size_t kLookBack = 16;
    const std::size_t size = request.prompt.size();
    for (std::size_t i = size - std::min(size, kLookBack); i < size; ++i) {
      stream_.push(request.prompt[i]);
    }
  }

  // False when the reader wants no more.
  bool push(std::int32_t id) { return emit(filter_.push(stream_.push(id))); }
  void finish() {
    if (filter_.stopped()) return;
    std::string rest = filter_.push(stream_.finish());
    if (!filter_.stopped()) rest += filter_.finish();
    emit(rest);
  }
  bool stopped() const { return filter_.stopped(); }
  const std::string& text() const { return text_; }

 private:
  bool emit(const std::string& piece) {
    text_ += piece;
    return piece.empty() || on_text_(piece);
  }

  TextStream stream_;
  StopFilter filter_;
  const std::function<bool(std::string_view)>& on_text_;
  std::string text_;
};

}  // namespace

std::string_view name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndToken:
      return "end token";
    case FinishReason::kStopString:
      return "stop string";
    case FinishReason::kMaxTokens:
      return "token limit";
    case FinishReason::kContext:
      return "context full";
    case FinishReason::kCancelled:
      return "stopped";
  }
  return "?";
}

double GenerationStats::prefill_rate() const {
  const auto computed = static_cast<double>(prompt_tokens - reused_tokens);
  return prefill_seconds > 0 ? computed / prefill_seconds : 0;
}

double GenerationStats::decode_rate() const {
  const auto steps = static_cast<double>(generated_tokens - 1);
  return decode_seconds > 0 && steps > 0 ? steps / decode_seconds : 0;
}

Generator::Generator(ModelSession& session)
    : session_(session), runner_(session), sequence_(session.new_sequence()) {}

void Generator::check(const GenerationRequest& request) const {
  validate(request.sampling);
  if (request.prompt.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "the prompt is empty: this tokenizer adds no token of its own, so there is nothing to "
         "continue");
  }
  const auto tokens = static_cast<std::int64_t>(request.prompt.size());
  if (tokens >= session_.context()) {
    fail(ErrorCode::kInvalidArgument,
         "the prompt has {} tokens and the context holds {}; shorten it, or give --ctx {} or more",
         tokens, session_.context(), tokens + 1);
  }
  session_.check_ids(request.prompt);
}

void Generator::reuse_cache(const GenerationRequest& request, GenerationStats& stats) {
  const std::int64_t room = session_.context();
  const auto tokens = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t reach =
      request.max_tokens > 0 ? std::min(room, tokens + request.max_tokens) : room;
  const auto common = std::mismatch(request.prompt.begin(), request.prompt.end(),
                                    sequence_.ids.begin(), sequence_.ids.end())
                          .first -
                      request.prompt.begin();
  // The last token is computed again in any case: its logits are what comes next.
  std::int64_t kept = std::min({static_cast<std::int64_t>(common), sequence_.cached, tokens - 1});
  if (session_.reach_matters() && reach != sequence_.reach) kept = 0;
  runner_.truncate(sequence_, kept);
  sequence_.ids = request.prompt;
  sequence_.reach = reach;
  stats.prompt_tokens = tokens;
  stats.reused_tokens = kept;
}

// Logits behind the last token of the prompt.
std::span<const float> Generator::prefill(GenerationStats& stats) {
  const auto start = Clock::now();
  const auto tokens = static_cast<std::int64_t>(sequence_.ids.size());
  std::span<const float> logits;
  while (sequence_.cached < tokens) {
    check_interrupt();
    const std::int64_t count = std::min(session_.step_tokens(), tokens - sequence_.cached);
    const bool last = sequence_.cached + count == tokens;
    const StepItem item{&sequence_, count, last ? LogitRows::kLast : LogitRows::kNone};
    logits = runner_.run({&item, 1}).row(0);
    if (on_prefill)
      on_prefill(sequence_.cached - stats.reused_tokens, tokens - stats.reused_tokens);
  }
  stats.prefill_seconds = seconds_since(start);
  return logits;
}

Generation Generator::generate(const GenerationRequest& request,
                               const std::function<bool(std::string_view)>& on_text) {
  check(request);
  Generation result;
  reuse_cache(request, result.stats);
  SamplerChain sampler(request.sampling);
  AnswerText answer(session_.tokenizer(), request, on_text);
  std::span<const float> logits = prefill(result.stats);

  const auto start = Clock::now();
  while (true) {
    const std::int32_t id = sampler.pick(logits, sequence_.ids, sequence_.ids.size());
    sequence_.ids.push_back(id);
    result.ids.push_back(id);
    if (!request.ignore_end_tokens && session_.is_end_token(id)) {
      result.reason = FinishReason::kEndToken;
      break;
    }
    const bool wanted = answer.push(id);
    if (answer.stopped()) {
      result.reason = FinishReason::kStopString;
      break;
    }
    if (!wanted || interrupted()) {
      result.reason = FinishReason::kCancelled;
      break;
    }
    if (static_cast<std::int64_t>(result.ids.size()) == request.max_tokens) {
      result.reason = FinishReason::kMaxTokens;
      break;
    }
    if (static_cast<std::int64_t>(sequence_.ids.size()) >= session_.context()) {
      result.reason = FinishReason::kContext;
      break;
    }
    const StepItem item{&sequence_, 1, LogitRows::kLast};
    logits = runner_.run({&item, 1}).row(0);
  }
  answer.finish();
  result.stats.decode_seconds = seconds_since(start);
  result.stats.generated_tokens = static_cast<std::int64_t>(result.ids.size());
  result.text = answer.text();
  return result;
}

}  // namespace bl
