#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include "sample/row_kernels.h"

namespace bl {

// Σ exp(score) over a row. Requires every logit ≤ formula.top and formula.inverse > 0.
inline double exp_sum(std::span<const float> row, const ScoreFormula& formula) {
  const RowKernels& kernels = row_kernels();
  double total = 0;
  for (std::size_t begin = 0; begin < row.size(); begin += kRun) {
    const std::size_t count = std::min(kRun, row.size() - begin);
    total += kernels.exp_sum(row.data() + begin, count, formula);
  }
  return total;
}

}  // namespace bl
