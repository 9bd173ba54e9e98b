#pragma once
#include <cstdint>

#include "base/options.h"

namespace bl {

// How the next token is chosen. The order of the stages is that of the list.
struct SamplingParams {
  double repetition_penalty = 1.0;  // 1: off
  double temperature = 0.8;         // 0: greedy
  std::int64_t top_k = 50;          // 0: off
  double top_p = 0.95;              // 1: off; the token that crosses is kept
  double min_p = 0.0;               // 0: off; keeps p ≥ min_p · the best p
  std::uint64_t seed = 0;

  // Below 1/1000 even the smallest difference that float logits can show decides.
  bool greedy() const { return temperature < 1e-3 || top_k == 1; }

  template <class V>
  void visit(V&& v) {
    v(temperature, {"--temperature", "X", "flatness of the distribution; 0 is greedy"});
    v(top_k, {"--top-k", "N", "keep the N likeliest tokens; 0 keeps all"});
    v(top_p, {"--top-p", "X", "keep the likeliest tokens that hold this share; 1 keeps all"});
    v(min_p, {"--min-p", "X", "keep tokens at least X times as likely as the likeliest"});
    v(repetition_penalty,
      {"--repetition-penalty", "X", "divide the score of tokens that occurred; 1 is off"});
    v(seed, {"--seed", "N", "seed of the draws", "random"});
  }
};

// Throws kInvalidArgument naming the parameter, its value and what would be right.
void validate(const SamplingParams& params);

}  // namespace bl
