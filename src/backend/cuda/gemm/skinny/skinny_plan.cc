#include "backend/cuda/gemm/skinny/skinny_plan.h"

#include <algorithm>

#include "backend/cuda/gemm/activations/pack_activations.h"
#include "ops/matmul.h"

namespace bl::cuda {
namespace {

// Whether the launch has so little work that LaunchPlan::small_skinny_smem_from applies.
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

// Returns the tiling of all matrices; k_splits = 0 if one of them has none.
SkinnyRegsPlan tile_matrices(PartitionCache& partitions, int ctas,
                             std::span<const CodeWeights* const> weights) {
  // Split-K is planned for single matrices only.
  const int max_k_splits =
      weights.size() == 1
          ? std::clamp(static_cast<int>(kMaxSplitKNTiles) / weights[0]->view.n_tiles, 1,
                       static_cast<int>(kMaxPartials))
          : 1;
  SkinnyRegsPlan regs;
  regs.k_splits = 1;
  regs.upper_half_reduces = true;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const RegsPlan& plan = partitions.find_regs_plan(*weights[i], ctas, max_k_splits);
    if (plan.k_splits == 0) return {};
    regs.k_splits = plan.k_splits;
    regs.upper_half_reduces = regs.upper_half_reduces && plan.upper_half_reduces;
    regs.plans[i] = &plan;
    for (std::size_t w = 0; w < kRegsWarps; ++w) {
      regs.code_bytes[w] = std::max(regs.code_bytes[w], plan.code_bytes[w]);
    }
  }
  return regs;
}

SkinnyRegsPlan plan_skinny_regs(const SkinnyProblem& problem, PartitionCache& partitions,
                                int late) {
  const DeviceFacts& facts = problem.facts;
  const PackedGemmArgs& args = problem.args;
  if (!facts.dependent_launch()) return {};
  const int ctas = facts.multiprocessors;
  SkinnyRegsPlan regs = tile_matrices(partitions, ctas, problem.weights);
  if (!regs.exists()) return {};
  regs.ranges = partitions.find(problem.weights, {.ctas = ctas / regs.k_splits,
                                                  .pairs = args.gated,
                                                  .late = regs.k_splits == 1 ? late : 0,
                                                  .inputs = !has_one_input_layout(args)});
  // Two n_tiles a round for up to 8 tokens; with more tokens that takes too many registers.
  const std::size_t bytes = facts.shared_bytes_per_cta;
  regs.pairs = args.tokens <= kTokenTile && lay_out_regs(args, regs, {1, 2}, bytes).has_value();
  if (!regs.pairs && !lay_out_regs(args, regs, {2, 1}, bytes)) return {};
  return regs.ranges.longest() <= (args.gated ? kMaxGatedRangeNTiles : kMaxRangeNTiles)
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
  int stage = 0;  // bytes of one stage of all warps
  for (const std::int32_t codes : tiling.code_bytes) stage += codes + layout.scales;
  stage *= shape.n_tiles;
  int at = regs_fixed_bytes(shape);
  const int fitting = (static_cast<int>(bytes) - at) / stage;
  layout.stages = std::min(fitting, kMaxRegsStages);
  if (layout.stages == kMaxRegsStages - 1) layout.stages = kMaxRegsStages - 2;
  // More than one early round of two n_tiles delays the activations; with one n_tile a round it
  // hardly makes a difference (bench/ladder/gemm_skinny.md).
  layout.early = shape.n_tiles > 1 ? 1 : std::min(layout.stages, 3);
  for (int w = 0; w < kRegsWarps; ++w) {
    layout.pipeline_offset[w] = at;
    layout.codes[w] = tiling.code_bytes[static_cast<std::size_t>(w)];
    at += layout.stages * shape.n_tiles * (layout.codes[w] + layout.scales);
  }
  if (layout.stages < kFewestRegsStages) return std::nullopt;
  return layout;
}

SkinnyPlan plan_skinny(const SkinnyProblem& problem, PartitionCache& partitions) {
  const LaunchPlan& thresholds = problem.thresholds;
  SkinnyPlan plan;
  plan.tokens_per_launch = max_skinny_tokens(problem.facts);
  const int ctas = problem.facts.multiprocessors;
  const bool begins_late = problem.packs_first && problem.tokens <= plan.tokens_per_launch;
  const std::int64_t smem_from = is_small_work(problem.args, ctas)
                                     ? thresholds.small_skinny_smem_from
                                     : thresholds.skinny_smem_from;
  if (problem.tokens > 1 && problem.tokens < smem_from && !problem.deterministic) {
    const int late = begins_late ? pack_ctas(problem.tokens, false) : 0;
    plan.regs = plan_skinny_regs(problem, partitions, late);
  }
  if (!plan.regs.exists()) {
    const int late = begins_late ? pack_ctas(problem.tokens, true) : 0;
    plan.ranges =
        partitions.find(problem.weights, {.ctas = ctas, .pairs = problem.args.gated, .late = late});
  }
  return plan;
}

}  // namespace bl::cuda
