#include "backend/cuda/gemm/activations/activate_staged.h"

#include "backend/cuda/gemm/activations/act_f16.h"

namespace bl::cuda {

void activate_into_halves(ExecContext& ctx, const ActivateArgs& args, bool halves) {
  const StagedInput& out = *args.staged_out;
  ArenaScope scope(*ctx.scratch);
  const auto stride = [&](const TensorView& view) { return (halves ? 2 : 1) * view.row_stride; };
  ActF16ActivateArgs rows;
  rows.gate = args.gate.data;
  rows.up = args.up.data;
  rows.gate_stride = stride(args.gate);
  rows.up_stride = stride(args.up);
  rows.halves = halves;
  rows.tokens = args.gate.rows();
  rows.width = args.gate.columns();
  rows.to = act_f16_for(out.reader);
  rows.to.rows = out.rows.data;
  rows.act_scale = out.row_scales;
  rows.row_largest = ctx.scratch->take_f32({rows.tokens}).as<float>();
  make_act_f16_activate(ctx, rows, args);
}

}  // namespace bl::cuda
