#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace bl::cuda {
namespace {

constexpr int kFewestStages = 3;  // of a ring, for entries to be as long as they may

// Places of `room` for an entry of so many pieces.
GemvPipelineShape ring_of(const PipelineShape& room, int most_joined, int space) {
  GemvPipelineShape pipeline;
  pipeline.most_joined = most_joined;
  pipeline.scale_room = PipelineShape::rounded(most_joined * room.scale_room);
  pipeline.stage_bytes = pipeline.scale_room + PipelineShape::rounded(most_joined * room.code_room);
  pipeline.stages = std::min(kMaxStages, space / pipeline.stage_bytes);
  return pipeline;
}

// The most strips that a share takes at a time.
int n_tiles_at_once(const CtaRanges& cta_ranges) {
  int longest = 1;
  for (std::size_t i = 0; i + 1 < cta_ranges.host_begins.size(); ++i) {
    longest = std::max(longest, cta_ranges.host_begins[i + 1] - cta_ranges.host_begins[i]);
  }
  return std::min(longest, kStageNTiles);
}

GemvSource source_of(const PackedGemmMatrix& m, bool pairs, const GemvSmemLayout& layout,
                     std::span<const CopyBlock> copy_blocks) {
  GemvSource source;
  source.codes = m.view.codes;
  source.scales = m.view.scales;
  source.n_tile_bytes = static_cast<std::uint32_t>(m.view.n_tile_bytes);
  source.scale_stride = static_cast<std::uint32_t>(scale_stride(m.view.kind, m.view.groups));
  source.copy_blocks = m.view.copy_block_count;
  source.k_blocks_at = m.k_blocks_at;
  source.input_at = m.input_layout * layout.input_layout_bytes;
  source.scale_bytes = static_cast<std::uint8_t>(scale_bytes(m.view.kind));
  source.k_block_bytes = pairs ? sizeof(KBlockPair) : sizeof(KBlock);
  constexpr int kMostJoined = 255 / kMaxCopyBlockSteps;  // a Piece counts in bytes
  for (int n_tiles = 1; n_tiles <= kStageNTiles; ++n_tiles) {
    const int joined = std::clamp(layout.pipeline.most_joined / n_tiles, 1, kMostJoined);
    source.joined[n_tiles - 1] = static_cast<std::uint8_t>(joined);
    source.loads[n_tiles - 1] =
        static_cast<std::uint16_t>((m.view.copy_block_count + joined - 1) / joined);
    for (const CopyBlock& copy_block :
         copy_blocks.first(std::min<std::size_t>(joined, copy_blocks.size()))) {
      source.first_codes[n_tiles - 1] += copy_block.size * 64u;
    }
  }
  return source;
}

}  // namespace

int max_input_layouts(const PackedGemmArgs& args, const CtaRanges& cta_ranges) {
  if (has_one_input_layout(args)) return 1;
  if (args.gated)
    return std::abs(args.matrices[1].input_layout - args.matrices[0].input_layout) + 1;
  int most = 1;
  for (std::size_t i = 0; i + 1 < cta_ranges.host_begins.size(); ++i) {
    int least = kMaxMatrices;
    int last = 0;
    int before = 0;
    for (int m = 0; m < args.count; ++m) {
      const int end = before + args.matrices[m].view.n_tiles;
      if (before < cta_ranges.host_begins[i + 1] && end > cta_ranges.host_begins[i]) {
        least = std::min(least, args.matrices[m].input_layout);
        last = std::max(last, args.matrices[m].input_layout);
      }
      before = end;
    }
    most = std::max(most, last - least + 1);
  }
  return most;
}

GemvSmemLayout lay_out_gemv_i8(const PackedGemmArgs& args, const CtaRanges& cta_ranges,
                               const GemvSmemLimits& limits) {
  GemvSmemLayout layout;
  PipelineShape room;
  int k_steps = 0;
  const int input_layouts = max_input_layouts(args, cta_ranges);
  int tables = 0;
  for (int i = 0; i < args.count; ++i) {
    const PackedGemmMatrix& matrix = args.matrices[i];
    room.make_room(matrix.copy_block_bytes, matrix.copy_block_scale_bytes);
    k_steps = std::max(k_steps, matrix.view.k_steps);
    tables += table_bytes(matrix.view, args.pairs);
  }
  layout.input_layout_bytes = k_steps * (kInputKStepBytes + kLimbScaleBytes);
  layout.limb_scale_at = k_steps * kInputKStepBytes;
  layout.token_stride = input_layouts * layout.input_layout_bytes;
  layout.tables_at = PipelineShape::rounded(limits.fixed + args.tokens * layout.token_stride);
  layout.bytes = layout.tables_at;
  if (!limits.pipeline) return layout;
  layout.pipeline_offset = PipelineShape::rounded(layout.tables_at + tables);
  const int space = limits.all - layout.pipeline_offset - PipelineShape::kHeadersBytes;
  // Where codes are narrow, twice as many pieces an entry: fewer entries are to be brought and to
  // be waited for.
  layout.pipeline = ring_of(room, kStageNTiles, space);
  const GemvPipelineShape twice = ring_of(room, 2 * kStageNTiles, space);
  if (twice.stages >= kFewestStages) layout.pipeline = twice;
  // Where there is little room, no more than the share's strips take.
  if (layout.pipeline.stages < kFewestStages) {
    layout.pipeline = ring_of(room, n_tiles_at_once(cta_ranges), space);
  }
  layout.bytes = layout.pipeline_offset + PipelineShape::kHeadersBytes +
                 std::max(layout.pipeline.stages, 1) * layout.pipeline.stage_bytes;
  return layout;
}

GemvLaunchPlan plan_gemv_i8(const PackedGemmArgs& args, const CtaRanges& cta_ranges,
                            const GemvSmemLayout& layout,
                            std::span<const std::span<const CopyBlock>> copy_blocks) {
  GemvLaunchPlan plan;
  plan.begins = CtaRangeBegins(cta_ranges);
  plan.gated = args.gated;
  std::fill(std::begin(plan.first_n_tiles), std::end(plan.first_n_tiles), GemvLaunchPlan::kNoNTile);
  int n_tiles = 0;
  for (int i = 0; i < args.count; ++i) {
    const PackedGemmMatrix& m = args.matrices[i];
    plan.sources[i] = source_of(m, args.pairs, layout, copy_blocks[i]);
    if (copy_blocks[i].size() <= GemvLaunchPlan::kMostCopyBlocks) {
      std::copy(copy_blocks[i].begin(), copy_blocks[i].end(), plan.copy_blocks[i]);
    } else {
      plan.sources[i].far_copy_blocks = args.pairs ? m.view.pair_copy_blocks : m.view.copy_blocks;
    }
    if (i == 0 || !args.gated) plan.first_n_tiles[i] = n_tiles;
    n_tiles += m.view.n_tiles;
  }
  return plan;
}

}  // namespace bl::cuda
