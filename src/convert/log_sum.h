#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/fast_exp.h"

namespace bl {

// The largest element of a row of logits, and the logarithm of Σ exp(x − largest).
struct LogSum {
  float largest = 0.0f;
  double log_sum = 0.0;
  // The logarithm of the probability that the softmax gives to a logit of the row.
  double log_probability(float logit) const {
    return static_cast<double>(logit) - largest - log_sum;
  }
};

inline LogSum log_sum_of(const float* row, std::int64_t n) {
  const float largest = *std::max_element(row, row + n);
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += fast_exp(row[i] - largest);
  return {largest, std::log(sum)};
}

}  // namespace bl
