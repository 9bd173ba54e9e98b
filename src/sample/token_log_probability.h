#pragma once
// Log-probabilities that answers report. Raw ones, which APIs call logprobs, are of the model's own
// distribution at temperature 1 before any stage. Those after the chain are of the distribution
// that SamplerChain::find_distribution() leaves.

#include <cstdint>
#include <span>
#include <vector>

#include "sample/sample_row.h"

namespace bl {

struct TokenLogProbability {
  std::int32_t id = 0;
  double value = 0;  // natural logarithm; −∞ for tokens that were cut
};

// Finds the n likeliest tokens of a row, likeliest first (ties: low ids), and the value of any
// token. Keeps its buffers between rows.
class TopLogProbabilities {
 public:
  // From a row of logits [vocab], which must stay alive while of() is used. Throws as top_logit()
  // does.
  void find(std::span<const float> logits, std::size_t n);
  // From candidates, which must stay alive too; fewer than n if fewer are left.
  void find(const SampleRow& candidates, std::size_t n);

  std::span<const TokenLogProbability> top() const { return top_; }
  // The log-probability of a token in the row that find() was given.
  double of(std::int32_t id) const;

 private:
  std::span<const float> logits_;
  const SampleRow* candidates_ = nullptr;
  double log_mass_ = 0;
  std::vector<LogitEntry> entries_;
  std::vector<TokenLogProbability> top_;
};

}  // namespace bl
