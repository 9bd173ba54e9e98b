#include "backend/cuda/gemm/run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/gemm/activations/pack_activations.h"
#include "backend/cuda/gemm/activations/pack_staged.h"
#include "backend/cuda/gemm/fusion.h"
#include "backend/cuda/gemm/gemm_ops.h"
#include "backend/cuda/gemm/gemm_state.h"
#include "backend/cuda/gemm/gemv_i8/gemv_i8.h"
#include "backend/cuda/gemm/large/gemm_large.h"
#include "backend/cuda/gemm/skinny/gemm_skinny_regs.h"
#include "backend/cuda/gemm/skinny/gemm_skinny_smem.h"
#include "backend/cuda/gemm/splitk/reduce_partials.h"
#include "backend/cuda/ops/row_ops.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

// Packs the activations that a skinny launch reads: once for all matrices with one input layout.
class ActivationPacker {
 public:
  ActivationPacker(ExecContext& ctx, const MatmulArgs& gemm, const SkinnyPlan& plan)
      : ctx_(ctx), gemm_(gemm) {
    args_.tile = plan.tokens_per_launch;
    // With activations in registers the GEMM sums them up itself.
    args_.sums = !plan.regs.exists();
  }

  const FragmentTarget& target_for(const CodeWeights& weights) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (keys_[i] == key_of(weights)) return args_.targets[i];
    }
    BL_CHECK(args_.count < kMaxMatrices);
    const std::int64_t rows = packed_act_rows(gemm_.tokens());
    FragmentTarget& target = args_.targets[args_.count++];
    target = fragment_target_of(weights);
    const std::int64_t elements = std::max<std::int64_t>(rows * target.k_steps * kKStepSize, 1);
    target.fragments = ctx_.scratch->take(DType::kF16, {elements}).as<std::uint32_t>();
    if (args_.sums)
      target.k_block_sums = ctx_.scratch->take_f32({rows, target.k_steps}).as<float>();
    keys_.push_back(key_of(weights));
    return target;
  }

  // Has pack_activations() zero these row scales on its way.
  void clear(float* row_scales, int count) {
    args_.zeros = row_scales;
    args_.zero_count = count;
  }

  // Enqueues the packing. Returns the row scales.
  const float* run(const InputNorm& norm) {
    args_.x = gemm_.x;
    args_.partials = gemm_.prologue.partials;
    args_.x_sum = gemm_.prologue.sum;
    args_.row_scales = ctx_.scratch->take_f32({gemm_.tokens()}).as<float>();
    args_.norm = norm;
    pack_activations(ctx_, args_);
    return args_.row_scales;
  }

 private:
  // k_block_sums depend on how K is cut into k_blocks, fragments do not.
  std::pair<std::uint64_t, std::int32_t> key_of(const CodeWeights& weights) const {
    return {args_.sums ? weights.input_layout : weights.permutation, weights.view.k_steps};
  }

  ExecContext& ctx_;
  const MatmulArgs& gemm_;
  PackActivationsArgs args_;
  std::vector<std::pair<std::uint64_t, std::int32_t>> keys_;
};

// Launches a skinny GEMM over all tokens, tokens_per_launch at a time.
void launch_skinny(ExecContext& ctx, PackedLaunch& launch, std::int64_t tokens) {
  PackedGemmArgs& args = launch.gemm.args;
  const SkinnyPlan& plan = launch.skinny;
  const std::int32_t* begins =
      plan.regs.exists() ? nullptr : gemm_state(ctx).tables.begins(plan.ranges);
  for (std::int64_t first = 0; first < tokens; first += plan.tokens_per_launch) {
    args.first_token = first;
    args.tokens = static_cast<int>(std::min<std::int64_t>(plan.tokens_per_launch, tokens - first));
    if (plan.regs.exists()) {
      const int k_split_rows = plan.regs.k_splits > 1 ? static_cast<int>(tokens) : 0;
      gemm_skinny_regs(ctx, args, plan.regs, k_split_rows);
    } else {
      gemm_skinny_smem(ctx, args, plan.ranges, begins);
    }
  }
}

// Split-K: every k_split writes its partial sums; they are reduced unless the reader does that.
void run_split_k(ExecContext& ctx, PackedLaunch& launch, std::int64_t tokens) {
  PackedGemm& gemm = launch.gemm;
  PackedGemmMatrix& m = gemm.args.matrices[0];
  const std::int64_t columns = m.view.out;
  const bool stay = !gemm.partials_out.empty();
  const TensorView partials =
      stay ? gemm.partials_out
           : ctx.scratch->take_f32({launch.skinny.regs.k_splits, tokens, columns});
  PartialSums sums{.to = view_of(m.out, {tokens, columns}), .partials = partials, .bias = m.bias};
  sums.to.row_stride = m.out_stride;
  if (gemm.args.accumulate) sums.from = sums.to;
  m.out = partials.as<float>();
  m.out_stride = columns;
  m.bias = nullptr;
  gemm.args.accumulate = false;
  launch_skinny(ctx, launch, tokens);
  if (!stay) reduce_partials(ctx, sums);
}

void run_skinny(ExecContext& ctx, PackedLaunch& launch, std::int64_t tokens) {
  if (launch.skinny.regs.k_splits > 1) return run_split_k(ctx, launch, tokens);
  launch_skinny(ctx, launch, tokens);
}

void run_staged(ExecContext& ctx, const StagedInput& staged, PackedLaunch& launch) {
  PackedGemm& gemm = launch.gemm;
  BL_CHECK(gemm.args.count == 1);
  gemm.args.matrices[0].fragments = staged.rows.as<const std::uint32_t>();
  gemm.args.row_scales = staged.row_scales;
  gemm.args.feature_of_k = gemm.weights[0]->feature_of_k;
  run_skinny(ctx, launch, staged.rows.rows());
}

void pack_and_run_skinny(ExecContext& ctx, const MatmulArgs& gemm, PackedLaunch& launch) {
  PackedGemmArgs& args = launch.gemm.args;
  const bool regs = launch.skinny.regs.exists();
  const std::int64_t tokens = gemm.tokens();
  ActivationPacker packer(ctx, gemm, launch.skinny);
  const StagedInput* staged_out = args.gated ? gemm.epilogue.activation->staged_out : nullptr;
  if (regs && staged_out != nullptr) {
    args.stage_out = staged_fragments_of(*staged_out);
    packer.clear(staged_out->row_scales, static_cast<int>(tokens));
  }
  for (int i = 0; i < args.count; ++i) {
    const FragmentTarget& target =
        packer.target_for(*launch.gemm.weights[static_cast<std::size_t>(i)]);
    args.matrices[i].fragments = target.fragments;
    args.matrices[i].k_block_sums = target.k_block_sums;
  }
  args.row_scales = packer.run(args.norm);
  run_skinny(ctx, launch, tokens);
  if (!regs && staged_out != nullptr) {
    pack_staged(ctx, gemm.epilogue.activation->out, *staged_out);
  }
}

void run_packed(ExecContext& ctx, const MatmulArgs& gemm, PackedLaunch& launch,
                PlanPrefetches prefetches) {
  ArenaScope scope(*ctx.scratch);
  PackedGemmArgs& args = launch.gemm.args;
  args.x = gemm.x.as<const float>();
  args.x_stride = gemm.x.row_stride;
  if (launch.kernel == GemmKernel::kGemvI8) {
    gemv_i8(ctx, args, launch.gemv,
            {launch.gemm.copy_blocks.data(), static_cast<std::size_t>(args.count)},
            prefetches(ctx, gemm));
    const StagedInput* staged_out = args.gated ? gemm.epilogue.activation->staged_out : nullptr;
    if (staged_out != nullptr) pack_staged(ctx, gemm.epilogue.activation->out, *staged_out);
  } else if (gemm.staged_x != nullptr) {
    run_staged(ctx, *gemm.staged_x, launch);
  } else {
    pack_and_run_skinny(ctx, gemm, launch);
  }
}

void run_launches(ExecContext& ctx, const MatmulArgs& gemm, GemmLaunches& launches,
                  PlanPrefetches prefetches) {
  if (launches.large) return gemm_large(ctx, gemm, *launches.large);
  for (int i = 0; i < launches.dense_count; ++i) {
    const DenseLaunch& launch = launches.dense[static_cast<std::size_t>(i)];
    if (launch.kernel == GemmKernel::kDenseLibrary) {
      dense_library_gemm(ctx, gemm, *launch.output);
    } else {
      dense_gemv_rows(ctx, gemm, *launch.output);
    }
  }
  for (int i = 0; i < launches.packed_count; ++i) {
    run_packed(ctx, gemm, launches.packed[static_cast<std::size_t>(i)], prefetches);
  }
}

// Rows [first, first + count) of a GEMM.
void run_slice(ExecContext& ctx, const MatmulArgs& gemm, std::int64_t first, std::int64_t count,
               PlanPrefetches prefetches) {
  std::array<MatmulOutput, kMaxMatrices> outputs;
  BL_CHECK(gemm.outputs.size() <= outputs.size());
  for (std::size_t i = 0; i < gemm.outputs.size(); ++i) {
    outputs[i] = gemm.outputs[i];
    outputs[i].out = slice_rows(outputs[i].out, first, count);
  }
  MatmulArgs slice = gemm;
  slice.x = slice_rows(gemm.x, first, count);
  slice.outputs = std::span(outputs.data(), gemm.outputs.size());
  GemmLaunches launches = plan_launches(gemm_problem(ctx, slice), gemm_state(ctx).partitions);
  run_launches(ctx, slice, launches, prefetches);
}

void clear(const ExecContext& ctx, const TensorView& rows) {
  BL_CHECK(rows.dtype == DType::kF32 && rows.row_stride == rows.columns());
  const auto bytes = static_cast<std::size_t>(rows.shape.elements()) * sizeof(float);
  BL_CUDA_CHECK(cudaMemsetAsync(rows.data, 0, bytes, cuda_device(ctx).stream));
}

// Runs the launches in front of the GEMM, which make the x that it reads.
void run_in_front(ExecContext& ctx, const MatmulArgs& args, GemmPlan& plan) {
  TensorView& x = plan.core.x;
  if (args.staged_x == nullptr) x = args.x;
  if (plan.multiply_x) {
    activate(ctx,
             {.gate = x, .up = args.prologue.deferred_mul, .out = x, .kind = Activation::kNone});
  }
  if (plan.reduce_x) {
    x = args.prologue.sum.empty() ? ctx.scratch->take_f32(args.x.shape) : args.prologue.sum;
    reduce_partials(ctx, {.to = x, .from = args.x, .partials = args.prologue.partials});
  }
  if (plan.reduce_out) {
    const TensorView& out = args.outputs[0].out;
    reduce_partials(ctx, {.to = out, .from = out, .partials = args.epilogue.partials});
  }
  if (plan.normalise) {
    NormArgs norm_args = *args.prologue.norm;
    norm_args.x = x;
    norm_args.x.shape = {x.rows(), 1, x.columns()};
    norm_args.out = ctx.scratch->take_f32(norm_args.x.shape);
    norm(ctx, norm_args);
    const Shape rows{x.rows(), x.columns()};
    x = norm_args.out;
    x.shape = rows;
  }
}

}  // namespace

void run_gemm(ExecContext& ctx, const MatmulArgs& args, GemmPlan& plan, PlanPrefetches prefetches) {
  ArenaScope scope(*ctx.scratch);
  run_in_front(ctx, args, plan);
  const std::int64_t tokens = args.tokens();
  if (plan.rows_at_once < tokens) {
    for (std::int64_t first = 0; first < tokens; first += plan.rows_at_once) {
      run_slice(ctx, plan.core, first, std::min(plan.rows_at_once, tokens - first), prefetches);
    }
  } else {
    run_launches(ctx, plan.core, plan.launches, prefetches);
  }
  if (plan.activate_gate) {
    ActivateArgs gate = *args.epilogue.activation;
    gate.up = {};
    gate.out = gate.gate;
    activate(ctx, gate);
  }
  if (plan.activate) activate(ctx, *args.epilogue.activation);
  if (plan.clear_partials_out) clear(ctx, args.epilogue.partials_out);
}

void matmul_by_plan(ExecContext& ctx, const MatmulArgs& args, PlanPrefetches prefetches) {
  if (args.tokens() == 0) return;
  GemmPlan plan = choose_route(gemm_problem(ctx, args), gemm_state(ctx).partitions);
  run_gemm(ctx, args, plan, prefetches);
}

}  // namespace bl::cuda
