#pragma once
// How a large GEMM (17 tokens and more, with thresholds from LaunchPlan) runs: which binary16 rows
// are made of the activations, and by which kernel each output is multiplied. Pure host code.

#include <vector>

#include "backend/cuda/gemm/activations/act_f16.h"
#include "backend/cuda/gemm/gemm_problem.h"
#include "backend/cuda/gemm/wgmma/wgmma_plan.h"

namespace bl::cuda {

enum class LargeKernel : std::uint8_t {
  kWgmma,           // packed codes, dequantized in registers (wgmma/)
  kDequantLibrary,  // packed codes, dequantized into memory; then cuBLASLt
  kLibrary,         // plain 16-bit matrix: cuBLASLt
};

// One launch: outputs [first, first + count) of a group.
struct LargeLaunch {
  LargeKernel kernel = LargeKernel::kLibrary;
  std::size_t first = 0;
  std::size_t count = 0;
  WgmmaPlan wgmma = {};  // without its rows and out_scale
};

// Outputs whose matrices read the same binary16 (or bfloat16) rows; or one output whose matrix
// reads F32 rows.
struct LargeGroup {
  std::vector<const MatmulOutput*> outputs;
  bool reads_f16 = false;
  std::vector<LargeLaunch> launches;
};

struct LargePlan {
  std::vector<LargeGroup> groups;
  // The rows of all groups are normalised by one launch, since they differ by permutation alone.
  bool norm_together = false;
  // All outputs in one launch, whose tiles fill the card better; groups have no launches then.
  bool one_launch = false;
  WgmmaPlan wgmma = {};
  // Gate and up pass through binary16 on their way to an activation that stages its result.
  bool f16_results = false;
  // The activation is part of a launch; otherwise, where there is one, it follows.
  bool activates = false;
};

// Whether the prologue's norm can be part of making the rows.
bool large_can_fuse_norm(const MatmulArgs& gemm);

LargePlan plan_large(const GemmProblem& problem);

// Bytes of one n_tile of a matrix with so many k, dequantized.
constexpr std::int64_t dequantized_n_tile_bytes(std::int64_t k) { return k * kNTileColumns * 2; }

}  // namespace bl::cuda
