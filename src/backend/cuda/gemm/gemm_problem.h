#pragma once
// What the planners of GEMMs know: the GEMM itself, the card, and what was measured for it. Pure
// host code.

#include <cstddef>

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/gemm/launch_plan.h"
#include "backend/cuda/gemm/partition/partition_cache.h"
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

// Whether a step of so many tokens runs as a large GEMM on this weight (large/large_plan.h). Plain
// matrices may be large from more tokens on than packed ones, since their rows stay F32 until then.
inline bool is_large(const GemmProblem& problem, const PackedMatrix& weight, std::int64_t tokens) {
  const bool wgmma = problem.wgmma && has_codes(&weight);
  return !problem.deterministic && tokens >= problem.thresholds.large_or_wgmma_from(wgmma);
}

}  // namespace bl::cuda
