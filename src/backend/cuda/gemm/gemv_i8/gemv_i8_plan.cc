#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "backend/cuda/device/alignment.h"

namespace bl::cuda {
namespace {

// Fewest stages with which a pipeline may have stages of the largest size.
constexpr int kFewestStages = 3;

// Returns stages with room for `most_joined` copy_blocks.
GemvPipelineShape stages_for(const PipelineShape& room, int most_joined, int space) {
  GemvPipelineShape pipeline;
  pipeline.most_joined = most_joined;
  pipeline.scale_room = PipelineShape::rounded(most_joined * room.scale_room);
  pipeline.stage_bytes = pipeline.scale_room + PipelineShape::rounded(most_joined * room.code_room);
  pipeline.stages = std::min(kMaxStages, space / pipeline.stage_bytes);
  return pipeline;
}

// Returns the most n_tiles that a CTA has in one group.
int n_tiles_at_once(const CtaRanges& cta_ranges) {
  int longest = 1;
  for (std::size_t i = 0; i + 1 < cta_ranges.begins.size(); ++i) {
    longest = std::max(longest, cta_ranges.begins[i + 1] - cta_ranges.begins[i]);
  }
  return std::min(longest, kGemvNTiles);
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
  constexpr int kMostJoined = 255 / kMaxCopyBlockSteps;  // a CopyBlock counts in bytes
  for (int n_tiles = 1; n_tiles <= kGemvNTiles; ++n_tiles) {
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
  for (std::size_t i = 0; i + 1 < cta_ranges.begins.size(); ++i) {
    int least = kMaxMatrices;
    int last = 0;
    int before = 0;
    for (int m = 0; m < args.count; ++m) {
      const int end = before + args.matrices[m].view.n_tiles;
      if (before < cta_ranges.begins[i + 1] && end > cta_ranges.begins[i]) {
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
  // With several tokens, half a warp reads 64 bytes of each of two: from different banks.
  if (args.tokens > 1) layout.token_stride = PipelineShape::rounded(layout.token_stride) + 64;
  layout.tables_at = PipelineShape::rounded(limits.fixed + args.tokens * layout.token_stride);
  layout.bytes = layout.tables_at;
  if (!limits.pipeline) return layout;
  layout.pipeline_offset = PipelineShape::rounded(layout.tables_at + tables);
  const int space = limits.all - layout.pipeline_offset - PipelineShape::kHeadersBytes;
  // Narrow codes: twice as many copy_blocks in a stage, so that there are fewer stages to issue and
  // wait for.
  layout.pipeline = stages_for(room, kGemvNTiles, space);
  const GemvPipelineShape twice = stages_for(room, 2 * kGemvNTiles, space);
  if (twice.stages >= kFewestStages) layout.pipeline = twice;
  // Little room: no more than the n_tiles of a range need, then smaller groups of n_tiles.
  for (int n_tiles = n_tiles_at_once(cta_ranges);
       n_tiles > 0 && layout.pipeline.stages < kFewestStages; n_tiles /= 2) {
    layout.pipeline = stages_for(room, n_tiles, space);
    layout.pipeline.n_tiles_at_once = n_tiles;
  }
  layout.bytes = layout.pipeline_offset + PipelineShape::kHeadersBytes +
                 std::max(layout.pipeline.stages, 1) * layout.pipeline.stage_bytes;
  return layout;
}

GemvLaunchPlan plan_gemv_i8(const PackedGemmArgs& args, const CtaRanges& cta_ranges,
                            const GemvSmemLayout& layout,
                            std::span<const std::span<const CopyBlock>> copy_blocks) {
  GemvLaunchPlan plan;
  plan.begins = CtaRangeBegins(cta_ranges, nullptr);
  plan.gated = args.gated;
  plan.n_tiles_at_once = layout.pipeline.n_tiles_at_once;
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

bool is_plain_gemv(const PackedGemmArgs& args) {
  if (args.tokens > 1 || !has_one_input_layout(args)) return false;
  if (args.norm.present && args.norm.weight == nullptr) return false;
  if (args.gated && !is_plain_silu(args.activation)) return false;
  const bool bare = !args.norm.present && (args.x_partial == nullptr || args.x_partial_multiplies);
  const int most = bare ? kPlainRowFeatures : kPlainNormedFeatures;
  const auto is_plain = [most](const PackedGemmMatrix& m) {
    return !m.padded && m.bias == nullptr && m.view.run_count <= kPlainLimbRuns &&
           m.features <= most;
  };
  return std::all_of(args.matrices, args.matrices + args.count, is_plain);
}

bool can_pair_k_blocks(const DeviceFacts& facts, const PackedGemmArgs& args) {
  return facts.shared_pipelines() && is_plain_gemv(args) &&
         std::all_of(args.matrices, args.matrices + args.count,
                     [](const PackedGemmMatrix& m) { return m.view.pairs != nullptr; });
}

std::optional<GemvPlan> plan_gemv_i8_launch(const DeviceFacts& facts, const PackedGemmArgs& args,
                                            const CtaRanges& ranges) {
  // Stages that several tokens need to be faster here than in the skinny kernels.
  constexpr int kFewestForSeveral = 2;
  for (int i = 0; i < args.count; ++i) {
    if (args.matrices[i].fragment_offset_of_feature == nullptr) return std::nullopt;
  }
  if (args.tokens > kGemvTokens || args.in % 4 != 0 || !is_aligned(args.x, 16) ||
      !is_aligned(args.x_partial, 16) || !is_aligned(args.norm.weight, 16) ||
      !is_aligned(args.x_sum, 16) ||
      (args.tokens > 1 && (args.x_stride % 4 != 0 || args.x_sum_stride % 4 != 0))) {
    return std::nullopt;
  }
  const auto room = static_cast<int>(facts.shared_bytes_per_cta);
  const GemvSmemLayout layout = lay_out_gemv_i8(
      args, ranges,
      {.fixed = gemv_fixed_bytes(args.tokens), .all = room, .pipeline = facts.shared_pipelines()});
  if (args.tokens > 1 && layout.pipeline.stages < kFewestForSeveral) return std::nullopt;
  if (layout.bytes > room) return std::nullopt;
  return GemvPlan{ranges, layout};
}

}  // namespace bl::cuda
