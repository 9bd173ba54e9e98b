#pragma once
// How a large GEMM (17 tokens and more, thresholds in LaunchPlan) runs: which binary16 rows its
// activations become, and which kernel multiplies each output. Pure host code.

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
  WgmmaPlan wgmma = {};  // its rows and out_scale are still missing
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
  // One launch normalises the rows of all groups, since they differ only by permutation.
  bool norm_together = false;
  // All outputs are in one launch, whose tiles fill the card better; the groups then have no
  // launches.
  bool one_launch = false;
  WgmmaPlan wgmma = {};
  // Gate and up are written as binary16 for an activation that stages its result.
  bool f16_results = false;
  // The activation is fused into a launch; otherwise it follows, if there is one.
  bool activates = false;
};

// Whether making the rows can include the prologue's norm.
bool large_can_fuse_norm(const MatmulArgs& gemm);

LargePlan plan_large(const GemmProblem& problem);

// Bytes of one dequantized n_tile of a matrix with this many k.
constexpr std::int64_t dequantized_n_tile_bytes(std::int64_t k) { return k * kNTileColumns * 2; }

}  // namespace bl::cuda
