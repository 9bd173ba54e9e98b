#pragma once
// The loops over whole rows, compiled once an instruction set. Sums run in kLanes lanes without
// contraction, so that every instruction set gives the same bits: in float over kShort values,
// where rounding adds up to 5e-7 at most even beside a weight of 1, and in double beyond.

#include <cstddef>
#include <limits>

namespace bl {

inline constexpr std::size_t kLanes = 16;
inline constexpr std::size_t kShort = 128;
inline constexpr std::size_t kRun = 1024;
inline constexpr std::size_t kBlock = 64;

// How logits become scores (stages/gather.h): x = logit − top, then x · inverse, or, where it is
// smooth, x² · (square + cube · x) · inverse. Logits below `floor` have no weight.
struct ScoreFormula {
  float top = 0;
  float inverse = 1;
  bool smooth = false;
  float square = 0;
  float cube = 0;
  float floor = -std::numeric_limits<float>::infinity();
};

struct RowKernels {
  // The largest of `count` values; NaN where one is NaN or +∞.
  float (*largest)(const float* values, std::size_t count);
  // Σ exp(score) of at most kRun values. Requires logits ≤ top, inverse > 0.
  double (*exp_sum)(const float* logits, std::size_t count, const ScoreFormula& formula);
  // The first of the blocks of kBlock values from `begin` on, up to `end`, with a value above
  // `cut`; `end` where there is none. end − begin is a multiple of kBlock.
  const float* (*block_above)(const float* begin, const float* end, float cut);
  // weights[i] = exp(scores[i]), scores ≤ 0; returns their sum.
  double (*weigh)(const float* scores, float* weights, std::size_t count);
};

// Those of the widest instruction set that the processor has.
const RowKernels& row_kernels();

}  // namespace bl
