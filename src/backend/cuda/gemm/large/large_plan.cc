#include "backend/cuda/gemm/large/large_plan.h"

#include <algorithm>
#include <bit>
#include <span>

#include "base/check.h"

namespace bl::cuda {
namespace {

// Matrices with equal numbers can read the same rows.
std::uint64_t permutation_of(const PackedMatrix* weight) {
  const CodeWeights* codes = cuda_matrix(weight).codes();
  return codes == nullptr || codes->is_identity ? 0 : codes->permutation;
}

bool read_alike(const PackedMatrix* a, const PackedMatrix* b) {
  const ActF16 first = act_f16_for(a);
  const ActF16 second = act_f16_for(b);
  return first.k == second.k && first.type == second.type && permutation_of(a) == permutation_of(b);
}

class LargePlanner {
 public:
  explicit LargePlanner(const GemmProblem& problem)
      : problem_(problem), gemm_(problem.gemm), tokens_(problem.gemm.tokens()) {}

  LargePlan plan() {
    plan_.f16_results = stores_f16();
    plan_.groups = group_outputs();
    plan_.norm_together = can_normalise_together();
    if (plan_.norm_together && !plan_.f16_results && gemm_.epilogue.activation == nullptr) {
      plan_.one_launch = plan_one_launch();
    }
    if (!plan_.one_launch) {
      for (LargeGroup& group : plan_.groups) {
        if (group.reads_f16) plan_launches(group);
      }
    }
    return std::move(plan_);
  }

 private:
  bool stores_f16() const {
    const ActivateArgs* activation = gemm_.epilogue.activation;
    if (activation == nullptr || activation->staged_out == nullptr) return false;
    return !gemm_.epilogue.accumulate &&
           std::all_of(gemm_.outputs.begin(), gemm_.outputs.end(), [](const MatmulOutput& output) {
             return !has_bias(output) && reads_act_f16(output.weight) &&
                    act_f16_for(output.weight).type == DType::kF16;
           });
  }

  std::vector<LargeGroup> group_outputs() const {
    std::vector<LargeGroup> groups;
    for (const MatmulOutput& output : gemm_.outputs) {
      const bool reads_f16 = reads_act_f16(output.weight);
      const auto group = std::find_if(groups.begin(), groups.end(), [&](const LargeGroup& g) {
        return reads_f16 && g.reads_f16 && read_alike(g.outputs.front()->weight, output.weight);
      });
      if (group != groups.end()) {
        group->outputs.push_back(&output);
      } else {
        groups.push_back({{&output}, reads_f16, {}});
      }
    }
    return groups;
  }

  // Adds a matrix to a wgmma launch; returns false if the launch cannot take it. `same_rows`: all
  // its matrices read one set of rows.
  bool add_wgmma(WgmmaPlan& plan, const MatmulOutput& output, bool same_rows = true) const {
    const std::int64_t from = problem_.thresholds.wgmma_from;
    const bool wgmma = problem_.wgmma && tokens_ >= from && from != LaunchPlan::kNeverWgmma;
    WgmmaArgs args = plan.launch.args;
    if (!wgmma || args.count == kMaxMatrices || !has_codes(output.weight)) return false;
    const CodeWeights& codes = *cuda_matrix(output.weight).codes();
    WgmmaMatrix& m = args.matrices[args.count++];
    m.view = codes.view;
    m.widest = std::bit_width(codes.plan.widths()) - 1;
    m.out = output.out.data;
    m.out_stride = (plan_.f16_results ? 2 : 1) * output.out.row_stride;
    const std::optional<WgmmaPlan> with = plan_wgmma(problem_.facts, args, same_rows);
    if (with) plan = *with;
    return with.has_value();
  }
  WgmmaPlan empty_wgmma() const {
    WgmmaPlan plan;
    plan.launch.args.tokens = tokens_;
    plan.launch.args.accumulate = gemm_.epilogue.accumulate;
    plan.launch.args.halves = plan_.f16_results;
    return plan;
  }

  bool can_normalise_together() const {
    const std::size_t count = plan_.groups.size();
    if (gemm_.prologue.norm == nullptr || count < 2 || count > kMaxMatrices) return false;
    std::size_t bytes = arena_bytes(DType::kF32, kPartialFloats + 1);  // and partial sums
    for (const LargeGroup& group : plan_.groups) {
      for (const MatmulOutput* output : group.outputs) {
        WgmmaPlan alone = empty_wgmma();
        if (!add_wgmma(alone, *output)) return false;
      }
      bytes += arena_bytes(DType::kF16, tokens_ * act_f16_for(group.outputs.front()->weight).k);
    }
    return bytes <= problem_.scratch;
  }

  bool plan_one_launch() {
    plan_.wgmma = empty_wgmma();
    for (const LargeGroup& group : plan_.groups) {
      for (const MatmulOutput* output : group.outputs) {
        if (!add_wgmma(plan_.wgmma, *output, false)) return false;
      }
    }
    return true;
  }

  void plan_launches(LargeGroup& group) {
    std::size_t i = 0;
    while (const std::size_t taken = plan_wgmma_launch(group, i)) i += taken;
    while (i < group.outputs.size()) {
      const bool codes = has_codes(group.outputs[i]->weight);
      const std::size_t count = codes ? neighbours(group, i) : 1;
      group.launches.push_back(
          {codes ? LargeKernel::kDequantLibrary : LargeKernel::kLibrary, i, count});
      i += count;
    }
  }

  // Plans one wgmma launch of as many outputs from number `first` on as it can take. Returns how
  // many.
  std::size_t plan_wgmma_launch(LargeGroup& group, std::size_t first) {
    WgmmaPlan plan = empty_wgmma();
    std::size_t taken = 0;
    while (first + taken < group.outputs.size() && add_wgmma(plan, *group.outputs[first + taken])) {
      taken += 1;
    }
    if (taken == 0) return 0;
    fuse_activation(std::span(group.outputs).subspan(first), plan);
    group.launches.push_back({LargeKernel::kWgmma, first, taken, plan});
    return taken;
  }

  // Fuses the activation into the launch of gate and up, or into that of up if gate's precedes it,
  // when the launch can write the layout that the reader of the activation wants.
  void fuse_activation(std::span<const MatmulOutput* const> outputs, WgmmaPlan& plan) {
    if (!plan_.f16_results || gemm_.outputs.size() != 2) return;
    const int count = plan.launch.args.count;
    const bool both = outputs.size() == 2 && count == 2;
    const bool up = count == 1 && outputs[0] == &gemm_.outputs[1];
    const ActivateArgs& activate = *gemm_.epilogue.activation;
    const StagedInput& staged = *activate.staged_out;
    const ActF16 wanted = act_f16_for(staged.reader);
    const ActivationParameters activation = activation_parameters(activate);
    if (!(both || up) || !can_fuse_activation(activation) || wanted.feature_of_k != nullptr ||
        wanted.k != outputs[0]->weight->out()) {
      return;
    }
    WgmmaArgs with = plan.launch.args;
    WgmmaActivation& to = with.activation;
    to.rows = static_cast<__half*>(staged.rows.data);
    to.stride = staged.rows.row_stride;
    to.act_scale = staged.row_scales;
    to.kind = activation.kind;
    if (up) {
      to.gate = static_cast<const __half*>(activate.gate.data);
      to.gate_stride = 2 * activate.gate.row_stride;
    }
    if (const std::optional<WgmmaPlan> fused = plan_wgmma(problem_.facts, with, true)) {
      plan = *fused;
      plan_.activates = true;
    }
  }

  // Returns how many outputs from `first` on are adjacent and can be dequantized together: one
  // large GEMM fills the card better than a few small ones.
  std::size_t neighbours(const LargeGroup& group, std::size_t first) const {
    if (plan_.f16_results) return 1;  // halves are not adjacent where their floats would be
    const auto& outputs = group.outputs;
    const std::int64_t bytes = dequantized_n_tile_bytes(act_f16_for(outputs.front()->weight).k);
    std::int64_t n_tiles = cuda_matrix(outputs[first]->weight).codes()->view.n_tiles;
    std::size_t count = 1;
    while (first + count < outputs.size()) {
      const MatmulOutput& last = *outputs[first + count - 1];
      const MatmulOutput& next = *outputs[first + count];
      if (!has_codes(next.weight) || last.weight->out() % kNTileColumns != 0 ||
          last.out.row_stride != next.out.row_stride ||
          last.out.as<float>() + last.weight->out() != next.out.as<float>()) {
        break;
      }
      n_tiles += cuda_matrix(next.weight).codes()->view.n_tiles;
      if (n_tiles * bytes > kExpandedBytes) break;
      count += 1;
    }
    return count;
  }

  const GemmProblem& problem_;
  const MatmulArgs& gemm_;
  std::int64_t tokens_;
  LargePlan plan_;
};

}  // namespace

bool large_can_fuse_norm(const MatmulArgs& gemm) {
  return can_fuse_norm_act_f16(gemm.x, *gemm.prologue.norm) &&
         std::all_of(gemm.outputs.begin(), gemm.outputs.end(),
                     [](const MatmulOutput& output) { return reads_act_f16(output.weight); });
}

LargePlan plan_large(const GemmProblem& problem) { return LargePlanner(problem).plan(); }

}  // namespace bl::cuda
