#include "sample/log_probability.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/fast_exp.h"
#include "sample/exp_sum.h"

namespace bl {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

[[noreturn]] void report_bad_logit(std::span<const float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
      fail(ErrorCode::kInvalidFile,
           "the model computed {} as the logit of token {}; its weights contain NaN, infinities or "
           "values out of range",
           logits[i], i);
    }
  }
  fail(ErrorCode::kInvalidFile, "the model computed −∞ for all {} logits", logits.size());
}

}  // namespace

TopLogit top_logit(std::span<const float> logits) {
  BL_CHECK(!logits.empty());
  const RowKernels& kernels = row_kernels();
  float top = kMinusInfinity;
  std::size_t run = 0;  // start of the first run that holds the largest
  for (std::size_t begin = 0; begin < logits.size(); begin += kRun) {
    const float best =
        kernels.largest(logits.data() + begin, std::min(kRun, logits.size() - begin));
    if (std::isnan(best)) report_bad_logit(logits);
    if (best > top) {
      top = best;
      run = begin;
    }
  }
  if (top == kMinusInfinity) report_bad_logit(logits);
  const auto at = std::find(logits.begin() + static_cast<std::ptrdiff_t>(run), logits.end(), top);
  return {top, static_cast<std::int32_t>(at - logits.begin())};
}

double log_sum_exp(std::span<const float> logits) {
  const float top = top_logit(logits).value;
  return static_cast<double>(top) + std::log(exp_sum(logits, {.top = top}));
}

double log_probability(std::span<const float> logits, std::int32_t id) {
  BL_CHECK(id >= 0 && static_cast<std::size_t>(id) < logits.size());
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - log_sum_exp(logits);
}

double kl_divergence(std::span<const float> base, std::span<const float> other) {
  BL_CHECK(base.size() == other.size());
  const double base_norm = log_sum_exp(base);
  const double other_norm = log_sum_exp(other);
  const auto shift = static_cast<float>(base_norm);
  // Σ p·((a − A) − (b − B)) with Σ p = 1: the normalizers leave the sum as (B − A), and Σ p·(a − b)
  // remains. Dividing by Σ p removes the rounding error of `shift`.
  double mass = 0;
  double difference = 0;
  for (std::size_t begin = 0; begin < base.size(); begin += kRun) {
    const std::size_t end = std::min(begin + kRun, base.size());
    std::array<float, kLanes> masses{};
    std::array<float, kLanes> sums{};
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) {
        const float p = fast_exp(std::min(base[i + j] - shift, 0.0f));
        masses[j] += p;
        // A token that is impossible in the base adds nothing, whatever the other model says.
        sums[j] += p == 0.0f ? 0.0f : p * (base[i + j] - other[i + j]);
      }
    }
    for (; i < end; ++i) {
      const float p = fast_exp(std::min(base[i] - shift, 0.0f));
      masses[0] += p;
      sums[0] += p == 0.0f ? 0.0f : p * (base[i] - other[i]);
    }
    for (std::size_t j = 0; j < kLanes; ++j) {
      mass += static_cast<double>(masses[j]);
      difference += static_cast<double>(sums[j]);
    }
  }
  return difference / mass + other_norm - base_norm;
}

}  // namespace bl
