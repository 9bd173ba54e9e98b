#pragma once
// What a GEMM planner knows: the GEMM itself, the card, and the measured thresholds. Pure host
// code.

#include <cstddef>

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/gemm/launch_plan.h"
#include "backend/cuda/gemm/partition/partition_cache.h"
#include "backend/cuda/gemm/partition/regs_plan.h"
#include "backend/cuda/weights/cuda_matrix.h"
#include "ops/matmul.h"

namespace bl::cuda {

struct GemmProblem {
  const MatmulArgs& gemm;
  const DeviceFacts& facts;
  const LaunchPlan& thresholds;
  bool wgmma = false;          // the build and the card have gemm/wgmma
  bool deterministic = false;  // a row's bits must not depend on the number of rows
  std::size_t scratch = 0;     // bytes of the step's scratch memory that are free
};

inline bool has_codes(const PackedMatrix* weight) { return cuda_matrix(weight).codes() != nullptr; }
inline bool has_bias(const MatmulOutput& output) { return !output.bias.empty(); }
inline const float* bias_of(const MatmulOutput& output) {
  return has_bias(output) ? output.bias.as<const float>() : nullptr;
}

// Whether a step of `tokens` tokens runs as a large GEMM on this weight (large/large_plan.h). Plain
// matrices may need more tokens for that than packed ones: below, their rows stay F32.
inline bool is_large(const GemmProblem& problem, const PackedMatrix& weight, std::int64_t tokens) {
  const bool wgmma = problem.wgmma && has_codes(&weight);
  return !problem.deterministic && tokens >= problem.thresholds.large_or_wgmma_from(wgmma);
}

// Whether every CTA packs the activations for itself, where the int8 GEMV can run them (gemv_i8/).
// `weight`: the first of the GEMM. From four tokens on only where gemm_skinny_regs() is not at its
// best: it is where one k_split gives each of its warps a whole number of k_steps to hold, and
// where rows are so long that reading them in every CTA takes longer (bench/ladder/gemv_i8.md).
inline bool packs_in_cta(const GemmProblem& problem, std::int64_t tokens,
                         const PackedMatrix& weight) {
  if (problem.deterministic || tokens >= problem.thresholds.skinny_from) return false;
  constexpr std::int64_t kAlways = 3;  // tokens
  constexpr std::int64_t kLongRow = 8192;
  constexpr std::int64_t kFullKSplit = std::int64_t{kRegsWarps} * kWarpKSteps * kKStepSize;
  return tokens <= kAlways || (weight.in() != kFullKSplit && weight.in() <= kLongRow);
}

}  // namespace bl::cuda
