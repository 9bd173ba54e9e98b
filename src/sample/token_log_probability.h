#pragma once
// Log-probabilities that answers report. Raw ones, of the model's own distribution at temperature 1
// before any stage, are what APIs call logprobs; those after the chain come from the distribution
// that SamplerChain::find_distribution() leaves.

#include <cstdint>
#include <span>
#include <vector>

#include "sample/sample_row.h"

namespace bl {

struct TokenLogProbability {
  std::int32_t id = 0;
  double value = 0;  // natural logarithm; −∞ for tokens that are cut
};

// The n likeliest tokens of rows, likeliest first (ties: low ids), and the value of any token.
// Keeps its buffers.
class TopLogProbabilities {
 public:
  // Of a row of logits [vocab]. Throws as top_logit() does.
  void find(std::span<const float> logits, std::size_t n);
  // Of candidates; fewer than n where fewer are left.
  void find(const SampleRow& candidates, std::size_t n);

  std::span<const TokenLogProbability> top() const { return top_; }
  // Of a token of the row that find() was given, which must still be there.
  double of(std::int32_t id) const;

 private:
  std::span<const float> logits_;
  const SampleRow* candidates_ = nullptr;
  double log_mass_ = 0;
  std::vector<LogitEntry> entries_;
  std::vector<TokenLogProbability> top_;
};

}  // namespace bl
