#pragma once
// How a skinny GEMM (2 to 64 tokens, thresholds in LaunchPlan) is launched: with activations in
// registers or in shared memory, and over which n_tiles. Pure host code, tested without a card.

#include <optional>
#include <span>

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/gemm/launch_plan.h"
#include "backend/cuda/gemm/packed_gemm_args.h"
#include "backend/cuda/gemm/partition/partition_cache.h"

namespace bl::cuda {

// gemm_skinny_regs.cu holds its structs and loops to these.
inline constexpr int kRegsThreads = kRegsWarps * 32;
inline constexpr int kMaxRangeNTiles = 128;      // n_tiles of a CTA's range
inline constexpr int kMaxGatedRangeNTiles = 48;  // of each matrix, for gate and up
inline constexpr int kMaxRegsStages = 8;
inline constexpr int kFewestRegsStages = 2;

// A variant of gemm_skinny_regs: token tiles of 8, and n_tiles of a round.
struct RegsShape {
  int token_tiles = 1;
  int n_tiles = 1;
  bool operator==(const RegsShape&) const = default;
};
// Bytes of shared memory in front of the pipelines.
constexpr int regs_fixed_bytes(const RegsShape& shape) {
  if (shape == RegsShape{1, 2}) return 67328;
  return shape == RegsShape{2, 1} ? 79104 : 50944;
}

// Shared memory of a CTA of gemm_skinny_regs: each warp has a pipeline of its own.
struct RegsLayout {
  int stages = 0;
  int early = 0;                         // stages that are filled before the activations are read
  int pipeline_offset[kRegsWarps] = {};  // bytes from the beginning of shared memory
  int codes[kRegsWarps] = {};            // bytes of one n_tile's codes; its scales follow
  int scales = 0;                        // bytes of one n_tile's scales
};
// Returns nothing if the pipelines do not fit into `bytes`.
std::optional<RegsLayout> lay_out_regs(const PackedGemmArgs& args, const RegsTiling& tiling,
                                       const RegsShape& shape, std::size_t bytes);

// A launch of gemm_skinny_regs(). k_splits = 0: it cannot run.
struct SkinnyRegsPlan : RegsTiling {
  const RegsPlan* plans[kMaxMatrices] = {};  // PartitionCache's
  CtaRanges ranges;                          // of one k_split
  bool pairs = false;                        // two n_tiles a round
  bool exists() const { return k_splits > 0; }
};

struct SkinnyPlan {
  int tokens_per_launch = 0;
  SkinnyRegsPlan regs;  // activations in registers, if it exists
  CtaRanges ranges;     // else activations in shared memory, over these
};

struct SkinnyProblem {
  const DeviceFacts& facts;
  const LaunchPlan& thresholds;
  const PackedGemmArgs& args;
  std::span<const CodeWeights* const> weights;  // of args.matrices
  std::int64_t tokens = 0;
  bool packs_first = false;    // pack_activations() is launched in front of it
  bool deterministic = false;  // one kernel for any number of tokens
};

SkinnyPlan plan_skinny(const SkinnyProblem& problem, PartitionCache& partitions);

}  // namespace bl::cuda
