#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/request.h"
#include "sample/sampler_chain.h"

namespace bl {

class ThreadPool;

// One row of logits, and what is wanted of it.
struct RowTask {
  std::span<const float> logits;             // [vocab]
  SamplerChain* sampler = nullptr;           // null: nothing is to be chosen
  std::span<const std::int32_t> history;     // the text so far
  std::span<const std::int32_t> end_tokens;  // the model's
  std::int64_t generated = 0;                // tokens of the answer so far
  std::int32_t known = -1;                   // the token that follows, where nothing is chosen
  std::int32_t alternatives = -1;            // log-probabilities beside the token's; −1: none

  // The outcome.
  std::int32_t id = -1;
  TokenLogprobs logprobs;
  std::string error;  // one line, where the row cannot be used
  ErrorCode code = ErrorCode::kInvalidFile;
};

// Chooses the tokens of a step's rows, each by its own sampler: on `threads` where there is more
// than a little to do. A row that is damaged spoils no other.
class RowSampler {
 public:
  explicit RowSampler(ThreadPool* threads);
  void run(std::span<RowTask> tasks);

 private:
  ThreadPool* threads_;
  std::vector<SampleRow> rows_;  // one a thread
};

// Log-probability of `id` and of the `count` likeliest tokens. Throws as top_logit() does.
TokenLogprobs logprobs_of(std::span<const float> logits, std::int32_t id, std::int32_t count);

}  // namespace bl
