#pragma once
// Sums over rows that compilers vectorise: float lanes over runs of kRun terms, runs in double.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "sample/fast_exp.h"

namespace bl {

inline constexpr std::size_t kLanes = 16;
inline constexpr std::size_t kRun = 1024;

// Σ exp((x − top) · inverse) of at most kRun values; requires x ≤ top and inverse > 0.
inline double exp_sum_of_run(std::span<const float> run, float top, float inverse) {
  std::array<float, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= run.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) sums[j] += fast_exp((run[i + j] - top) * inverse);
  }
  for (; i < run.size(); ++i) sums[0] += fast_exp((run[i] - top) * inverse);
  double total = 0;
  for (const float part : sums) total += static_cast<double>(part);
  return total;
}

inline double exp_sum(std::span<const float> row, float top, float inverse) {
  double total = 0;
  for (std::size_t begin = 0; begin < row.size(); begin += kRun) {
    total += exp_sum_of_run(row.subspan(begin, std::min(kRun, row.size() - begin)), top, inverse);
  }
  return total;
}

inline double sum(std::span<const float> values) {
  double total = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kRun) {
    const std::size_t end = std::min(begin + kRun, values.size());
    std::array<float, kLanes> sums{};
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) sums[j] += values[i + j];
    }
    for (; i < end; ++i) sums[0] += values[i];
    for (const float part : sums) total += static_cast<double>(part);
  }
  return total;
}

}  // namespace bl
