#pragma once
// Host side of gemv_i8: the layout of a CTA's shared memory, and everything that would cost the
// producer warp divisions or dependent loads. Pure arithmetic, tested without a card.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/gemm/packed_gemm_args.h"
#include "backend/cuda/gemm/partition/cta_ranges.h"
#include "backend/cuda/gemm/pipeline/pipeline_shape.h"

namespace bl::cuda {

// Stages of the pipeline and their contents, in bytes.
struct GemvPipelineShape {
  int stages = 0;
  int scale_room = 0;                 // scales, in front of the codes
  int stage_bytes = 0;                // scales and codes
  int most_joined = 1;                // copy_blocks in a stage of a single n_tile
  int n_tiles_at_once = kGemvNTiles;  // n_tiles of a group
  // Whether stages are filled, one after the other, before the row has been read: the copies slow
  // the row down, and weights that arrive late may cost less than a late row
  // (bench/ladder/gemv_i8.md).
  bool early = true;
};

// Tokens of the kernel for several tokens: a column of operand B for each of their limbs.
inline constexpr int kGemvTokens = 4;

// Barriers in shared memory: full and empty of every stage, and one for the row.
inline constexpr int kGemvBarriers = 2 * kMaxStages + 1;

// A matrix as the producer warp sees it.
struct GemvSource {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const CopyBlock* far_copy_blocks =
      nullptr;  // where there are more than GemvLaunchPlan has room for
  std::uint32_t n_tile_bytes = 0;
  std::uint32_t scale_stride = 0;  // bytes between n_tiles
  std::int32_t copy_blocks = 0;
  std::int32_t k_blocks_at = 0;    // in the tables of a launch
  std::int32_t input_at = 0;       // of its input layout, from layout 0 on
  std::uint8_t scale_bytes = 0;    // of a group
  std::uint8_t k_block_bytes = 0;  // in the tables
  // For groups of 1, 2, … n_tiles: copy_blocks in a stage, and stages.
  std::uint8_t joined[kGemvNTiles] = {};
  std::uint16_t loads[kGemvNTiles] = {};
  std::uint32_t first_codes[kGemvNTiles] = {};  // bytes of an n_tile in the first stage
};

// Kernel parameters that save the producer dependent loads in front of its first copy.
struct GemvLaunchPlan {
  static constexpr int kMostCopyBlocks = 16;
  static constexpr std::int32_t kNoNTile = std::numeric_limits<std::int32_t>::max();
  bool gated = false;
  std::int32_t n_tiles_at_once = kGemvNTiles;  // of a group
  // The first n_tile of each matrix, counted over all; a gated GEMM counts its n_tiles once.
  std::int32_t first_n_tiles[kMaxMatrices + 1] = {};
  GemvSource sources[kMaxMatrices];
  CtaRangeBegins begins;
  CopyBlock copy_blocks[kMaxMatrices][kMostCopyBlocks];  // of matrices with at most kMostCopyBlocks

  // Returns the matrix of an n_tile: in a gated GEMM the first one.
  BL_HD int matrix_of(int n_tile) const {
    int matrix = 0;
    for (int i = 1; i < kMaxMatrices; ++i) matrix += n_tile >= first_n_tiles[i] ? 1 : 0;
    return matrix;
  }
};

// The kernel and the card as the plan sees them, in bytes.
struct GemvSmemLimits {
  int fixed = 0;          // a CTA's shared memory in front of the limbs
  int all = 0;            // shared memory that a CTA can have
  bool pipeline = false;  // DeviceFacts::shared_pipelines()
};

// A CTA's shared memory, in this order: the fixed part, the limbs, the k_blocks of all matrices,
// the pipeline.
struct GemvSmemLayout {
  GemvPipelineShape pipeline;
  int input_layout_bytes = 0;  // limbs and limb scales of one input layout
  int limb_scale_at = 0;       // where the scales begin in it
  int token_stride = 0;        // one token's limbs: all input layouts of a range
  int tables_at = 0;
  int pipeline_offset = 0;
  int bytes = 0;  // all of it; the GEMV cannot run if there are fewer
};

// Returns the most input layouts that a range has room for: from its lowest number to its highest.
int max_input_layouts(const PackedGemmArgs& args, const CtaRanges& cta_ranges);

GemvSmemLayout lay_out_gemv_i8(const PackedGemmArgs& args, const CtaRanges& cta_ranges,
                               const GemvSmemLimits& room);

// `args` have their k_blocks_at. `copy_blocks`: those of one n_tile of each matrix. Where there are
// more than CtaRangeBegins::kMost CTAs the caller sets begins.far.
GemvLaunchPlan plan_gemv_i8(const PackedGemmArgs& args, const CtaRanges& cta_ranges,
                            const GemvSmemLayout& layout,
                            std::span<const std::span<const CopyBlock>> copy_blocks);

// Shared memory in front of the input, in bytes: gemv_i8.cu holds its struct to these.
constexpr int gemv_fixed_bytes(int tokens) { return tokens == 1 ? 18432 : 36352; }
// What the leaner kernels for one token have registers for: features of a row, of a row with a norm
// or partial sums, and limb runs of a CTA. limb_input.cuh holds its loops to these.
inline constexpr int kPlainRowFeatures = 15360;
inline constexpr int kPlainNormedFeatures = 9600;
inline constexpr int kPlainLimbRuns = 480;

// Whether the launch is one that most models have, for which there are leaner kernels: one token,
// one input layout a CTA without padding, a row and limb runs that are one round of a CTA, a norm
// with weights, SiLU if gated, no biases. Code for everything else stands in the way where a step's
// launches share the instruction cache (bench/ladder/gemv_i8.md).
bool is_plain_gemv(const PackedGemmArgs& args);

// Whether the k_blocks of all matrices are multiplied in pairs.
bool can_pair_k_blocks(const DeviceFacts& facts, const PackedGemmArgs& args);

// A launch of gemv_i8().
struct GemvPlan {
  CtaRanges ranges;
  GemvSmemLayout layout;
};

// Plans the launch for these ranges. Returns nothing if the kernel cannot run it: it needs one to
// four tokens, rows of whole float4s at multiples of 16 bytes, and limbs that leave room for the
// pipeline.
std::optional<GemvPlan> plan_gemv_i8_launch(const DeviceFacts& facts, const PackedGemmArgs& args,
                                            const CtaRanges& ranges);

}  // namespace bl::cuda
