#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model_session.h"
#include "engine/sequence.h"
#include "engine/step_runner.h"
#include "sample/sampling_params.h"

namespace bl {

struct GenerationRequest {
  std::vector<std::int32_t> prompt;
  SamplingParams sampling;
  std::int64_t max_tokens = 0;  // 0: as many as the context holds
  std::vector<std::string> stops;
  bool ignore_end_tokens = false;
  // The answer's text goes on where the prompt's ends (a space between them belongs to it); false
  // for the turn of a conversation, which stands by itself.
  bool continues_prompt = true;
};

enum class FinishReason { kEndToken, kStopString, kMaxTokens, kContext, kCancelled };
std::string_view name_of(FinishReason reason);

struct GenerationStats {
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = 0;  // of the prompt, already in the cache
  std::int64_t generated_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double prefill_rate() const;  // tokens per second computed
  double decode_rate() const;   // of the steps after the first token
};

struct Generation {
  FinishReason reason = FinishReason::kMaxTokens;
  std::string text;
  std::vector<std::int32_t> ids;  // the end token included where one came
  GenerationStats stats;
};

// Answers one request after another with one sequence. What the cache holds from the request
// before is kept as far as the new prompt begins with it, so that a conversation computes only what
// is new.
class Generator {
 public:
  explicit Generator(ModelSession& session);

  // on_text gets text as soon as it is certain; false from it ends the answer. A stop asked for by
  // a signal ends it too (kCancelled). Throws kInvalidArgument for a prompt that is empty or leaves
  // no room in the context, and for parameters out of range.
  Generation generate(const GenerationRequest& request,
                      const std::function<bool(std::string_view text)>& on_text);

  // Progress of a long prefill, if anybody wants it.
  std::function<void(std::int64_t done, std::int64_t total)> on_prefill;

 private:
  void check(const GenerationRequest& request) const;
  void reuse_cache(const GenerationRequest& request, GenerationStats& stats);
  std::span<const float> prefill(GenerationStats& stats);

  ModelSession& session_;
  StepRunner runner_;
  Sequence sequence_;
};

}  // namespace bl
