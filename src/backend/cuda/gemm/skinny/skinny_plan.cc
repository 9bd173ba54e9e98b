#include "backend/cuda/gemm/skinny/skinny_plan.h"

#include <algorithm>

#include "backend/cuda/gemm/activations/pack_activations.h"
#include "ops/matmul.h"

namespace bl::cuda {
namespace {

// Whether a launch has so little to do that LaunchPlan::small_skinny_smem_from holds for it.
bool is_small_work(const PackedGemmArgs& args, int ctas) {
  int k_steps = args.matrices[0].view.k_steps;
  std::int64_t all = 0;
  for (int i = 0; i < args.count; ++i) {
    const CodeMatrixView& m = args.matrices[i].view;
    k_steps = std::min(k_steps, m.k_steps);
    all += std::int64_t{m.n_tiles} * m.k_steps;
  }
  return is_small_cta_range(k_steps, all, ctas);
}

// The tiling that holds for all matrices; without k_splits where one of them has none.
SkinnyRegsPlan tile_matrices(PartitionCache& partitions, int ctas,
                             std::span<const CodeWeights* const> weights) {
  // The partial sums of several k_splits are those of one matrix.
  const int max_k_splits =
      weights.size() == 1
          ? std::clamp(static_cast<int>(kMaxSplitKNTiles) / weights[0]->view.n_tiles, 1,
                       static_cast<int>(kMaxPartials))
          : 1;
  SkinnyRegsPlan regs;
  regs.k_splits = 1;
  regs.upper_adds = true;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const RegsPlan& plan = partitions.find_regs_plan(*weights[i], ctas, max_k_splits);
    if (plan.k_splits == 0) return {};
    regs.k_splits = plan.k_splits;
    regs.upper_adds = regs.upper_adds && plan.upper_adds;
    regs.plans[i] = &plan;
    for (std::size_t w = 0; w < kRegsWarps; ++w) {
      regs.code_bytes[w] = std::max(regs.code_bytes[w], plan.code_bytes[w]);
    }
  }
  return regs;
}

SkinnyRegsPlan plan_skinny_regs(const DeviceFacts& facts, PartitionCache& partitions,
                                const PackedGemmArgs& args,
                                std::span<const CodeWeights* const> weights, int late) {
  if (!facts.dependent_launch()) return {};
  const int ctas = facts.multiprocessors;
  SkinnyRegsPlan regs = tile_matrices(partitions, ctas, weights);
  if (!regs.exists()) return {};
  regs.ranges = partitions.find(weights, {.ctas = ctas / regs.k_splits,
                                          .pairs = args.gated,
                                          .late = regs.k_splits == 1 ? late : 0,
                                          .inputs = !has_one_input_layout(args)});
  // Two n_tiles at a time for few tokens; for more tokens they take more registers than there are.
  const std::size_t bytes = facts.shared_bytes_per_cta;
  regs.pairs = args.tokens <= kTokenTile && lay_out_regs(args, regs, {1, 2}, bytes).has_value();
  if (!regs.pairs && !lay_out_regs(args, regs, {2, 1}, bytes)) return {};
  return regs.ranges.longest() <= (args.gated ? kMaxRangeNTilePairs : kMaxRangeNTiles)
             ? regs
             : SkinnyRegsPlan{};
}

}  // namespace

std::optional<RegsLayout> lay_out_regs(const PackedGemmArgs& args, const RegsTiling& tiling,
                                       const RegsShape& shape, std::size_t bytes) {
  RegsLayout layout;
  for (int i = 0; i < args.count; ++i) {
    layout.scales = std::max(layout.scales, kWarpKSteps * scale_bytes(args.matrices[i].view.kind));
  }
  int stage = 0;  // of all warps
  for (const std::int32_t codes : tiling.code_bytes) stage += codes + layout.scales;
  stage *= shape.n_tiles;
  int at = regs_fixed_bytes(shape);
  const int fitting = (static_cast<int>(bytes) - at) / stage;
  layout.stages = std::min(fitting, kMaxRegsStages);
  if (layout.stages == kMaxRegsStages - 1) layout.stages = kMaxRegsStages - 2;
  // More than one early round of two n_tiles delays the activations; with one n_tile a round it
  // hardly makes a difference (bench/ladder/few_tokens).
  layout.early = shape.n_tiles > 1 ? 1 : std::min(layout.stages, 3);
  for (int w = 0; w < kRegsWarps; ++w) {
    layout.pipeline_offset[w] = at;
    layout.codes[w] = tiling.code_bytes[static_cast<std::size_t>(w)];
    at += layout.stages * shape.n_tiles * (layout.codes[w] + layout.scales);
  }
  if (layout.stages < kFewestRegsStages) return std::nullopt;
  return layout;
}

SkinnyPlan plan_skinny(const DeviceFacts& facts, const LaunchPlan& thresholds,
                       PartitionCache& partitions, const PackedGemmArgs& args,
                       std::span<const CodeWeights* const> weights, const SkinnyRequest& request) {
  SkinnyPlan plan;
  plan.tokens_per_launch = max_skinny_tokens(facts);
  const int ctas = facts.multiprocessors;
  const bool begins_late = request.packs_first && request.tokens <= plan.tokens_per_launch;
  const std::int64_t smem_from =
      is_small_work(args, ctas) ? thresholds.small_skinny_smem_from : thresholds.skinny_smem_from;
  if (request.tokens > 1 && request.tokens < smem_from && !request.deterministic) {
    const int late = begins_late ? pack_ctas(request.tokens, false) : 0;
    plan.regs = plan_skinny_regs(facts, partitions, args, weights, late);
  }
  if (!plan.regs.exists()) {
    plan.ranges =
        partitions.find(weights, {.ctas = ctas,
                                  .pairs = args.gated,
                                  .late = begins_late ? pack_ctas(request.tokens, true) : 0});
  }
  return plan;
}

}  // namespace bl::cuda
