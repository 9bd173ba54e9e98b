#pragma once
// The ops of this backend; their contracts are in ops/.

#include "ops/op_table.h"

namespace bl::ref {

void embed(ExecContext& ctx, const EmbedArgs& args);
void norm(ExecContext& ctx, const NormArgs& args);
void activate(ExecContext& ctx, const ActivateArgs& args);
void add(ExecContext& ctx, const AddArgs& args);
void scale(ExecContext& ctx, const ScaleArgs& args);
void gate(ExecContext& ctx, const GateArgs& args);
void clamp(ExecContext& ctx, const ClampArgs& args);
void copy_rows(ExecContext& ctx, const CopyRowsArgs& args);
void add_rows(ExecContext& ctx, const AddRowsArgs& args);
void matmul(ExecContext& ctx, const MatmulArgs& args);
void route(ExecContext& ctx, const RouteArgs& args);
void experts(ExecContext& ctx, const ExpertsArgs& args);
void rope(ExecContext& ctx, const RopeArgs& args);
void kv_write(ExecContext& ctx, const KvWriteArgs& args);
void attention(ExecContext& ctx, const AttentionArgs& args);
void sample(ExecContext& ctx, const SampleArgs& args);

// act(gate) · up of one element, as ActivateArgs says; `up` is ignored where `gated` is false.
float activated(const ActivateArgs& args, float gate, float up, bool gated);

// out[t] = x[t] · weight for each row; weight F32 [in, out].
struct PackedGemmArgs {
  TensorView x;       // F32 [tokens, in]
  TensorView weight;  // F32 [in, out]
  TensorView out;     // F32 [tokens, out]
};
void product(ExecContext& ctx, const PackedGemmArgs& args);

// body(begin, end) over [0, count) on the threads of the context, or here where it has none.
template <class F>
void for_range(ExecContext& ctx, long count, long grain, const F& body) {
  if (ctx.threads != nullptr) {
    ctx.threads->parallel_for(count, grain, body);
  } else if (count > 0) {
    body(0, count);
  }
}

}  // namespace bl::ref
