#pragma once
// What the host works out for a launch of the product of one token or two (gemv_i8.cu): how
// the shared memory of a CTA is laid out, and what would take the warp that copies divisions and
// loads behind each other. Pure arithmetic, tested without a card.

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

// Places of a ring and what they hold, in bytes.
struct GemvPipelineShape {
  int stages = 0;
  int scale_room = 0;   // in front of the codes
  int stage_bytes = 0;  // both
  int most_joined = 1;  // pieces of a single strip
  // Whether entries are asked for, one after the other, before the row has been read: they stand in
  // its way, and what is not there in time may cost less than a late row (bench/ladder/exl2_gemv).
  bool early = true;
};

// In shared memory: of places, and of the row.
inline constexpr int kGemvBarriers = 2 * kMaxStages + 1;

// What the producing warp has to know of a matrix.
struct GemvSource {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const CopyBlock* far_copy_blocks =
      nullptr;  // where there are more than GemvLaunchPlan has room for
  std::uint32_t n_tile_bytes = 0;
  std::uint32_t scale_stride = 0;  // bytes between strips
  std::int32_t copy_blocks = 0;
  std::int32_t k_blocks_at = 0;    // in the tables of a launch
  std::int32_t input_at = 0;       // of its gather, from gather 0 on
  std::uint8_t scale_bytes = 0;    // of a group
  std::uint8_t k_block_bytes = 0;  // in the tables
  // Of groups of 1, 2, … strips: pieces of an entry, and entries.
  std::uint8_t joined[kGemvNTiles] = {};
  std::uint16_t loads[kGemvNTiles] = {};
  std::uint32_t first_codes[kGemvNTiles] = {};  // bytes of a strip in the first entry
};

// What would take loads one behind the other before the first copy can be asked for.
struct GemvLaunchPlan {
  static constexpr int kMostCopyBlocks = 16;
  static constexpr std::int32_t kNoNTile = std::numeric_limits<std::int32_t>::max();
  bool gated = false;
  // Of the matrices, among the strips of all of them: those of a gated product's count once.
  std::int32_t first_n_tiles[kMaxMatrices + 1] = {};
  GemvSource sources[kMaxMatrices];
  CtaRangeBegins begins;
  CopyBlock copy_blocks[kMaxMatrices][kMostCopyBlocks];  // of matrices that have no more

  // The matrix that a strip is of: of a gated product the first one.
  BL_HD int matrix_of(int n_tile) const {
    int matrix = 0;
    for (int i = 1; i < kMaxMatrices; ++i) matrix += n_tile >= first_n_tiles[i] ? 1 : 0;
    return matrix;
  }
};

// What the plan needs to know of the kernel and the card, in bytes.
struct GemvSmemLimits {
  int fixed = 0;          // of a CTA's shared memory, before the input
  int all = 0;            // that a CTA can have
  bool pipeline = false;  // there are bulk copies
};

// Where things lie in a CTA's shared memory, in this order: what is fixed, the input, the chunks of
// all matrices, the ring.
struct GemvSmemLayout {
  GemvPipelineShape pipeline;
  int input_layout_bytes = 0;  // of the input of one gather
  int limb_scale_at = 0;       // in it
  int token_stride = 0;        // of one token's input: the gathers of a share
  int tables_at = 0;
  int pipeline_offset = 0;
  int bytes = 0;  // of all; more than there are: the product cannot be made so
};

// Of the matrices of a share, at most: from the lowest number to the highest.
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
// launches share the instruction cache (bench/ladder/exl2_gemv).
bool is_plain_gemv(const PackedGemmArgs& args);

// Whether the k_blocks of all matrices are taken in pairs.
bool can_pair_k_blocks(const DeviceFacts& facts, const PackedGemmArgs& args);

// A launch of gemv_i8().
struct GemvPlan {
  CtaRanges ranges;
  GemvSmemLayout layout;
};

// The launch for these ranges, or nothing where the kernel cannot make it: it takes one token or
// two, whole float4s at multiples of 16 bytes, and an input that leaves room for the pipeline.
std::optional<GemvPlan> plan_gemv_i8_launch(const DeviceFacts& facts, const PackedGemmArgs& args,
                                            const CtaRanges& ranges);

}  // namespace bl::cuda
