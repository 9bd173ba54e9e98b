#pragma once
// Loops over whole rows, compiled once for each instruction set. Sums use kLanes lanes without
// contraction, so that all instruction sets give the same bits. They accumulate floats over at most
// kShort values, where the rounding error stays below 5e-7 even beside a weight of 1, and doubles
// beyond.

#include <cstddef>
#include <limits>

namespace bl {

// kLanes: independent partial sums. kShort: values per float sum. kRun: values per call of a
// kernel. kBlock: values that block_above() tests at once.
inline constexpr std::size_t kLanes = 16;
inline constexpr std::size_t kShort = 128;
inline constexpr std::size_t kRun = 1024;
inline constexpr std::size_t kBlock = 64;

// How a logit becomes a score (stages/gather.h): with x = logit − top the score is x · inverse or,
// if `smooth`, x² · (square + cube · x) · inverse. Logits below `floor` get no weight.
struct ScoreFormula {
  float top = 0;
  float inverse = 1;
  bool smooth = false;
  float square = 0;
  float cube = 0;
  float floor = -std::numeric_limits<float>::infinity();
};

struct RowKernels {
  // The largest of `count` values, or NaN if any is NaN or +∞.
  float (*largest)(const float* values, std::size_t count);
  // Σ exp(score) over at most kRun values. Requires every logit ≤ top and inverse > 0.
  double (*exp_sum)(const float* logits, std::size_t count, const ScoreFormula& formula);
  // Returns the first block of kBlock values in [begin, end) that has a value above `cut`, or
  // `end`. end − begin is a multiple of kBlock.
  const float* (*block_above)(const float* begin, const float* end, float cut);
  // Sets weights[i] = exp(scores[i]) and returns their sum. Requires scores ≤ 0.
  double (*weigh)(const float* scores, float* weights, std::size_t count);
};

// The kernels for the widest instruction set of this processor.
const RowKernels& row_kernels();

}  // namespace bl
