#pragma once
// The ops of this backend. Headers in ops/ state their contracts.

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

// act(gate) · up for one element, as ActivateArgs defines it. Without `gated`, act(gate); `up` is
// ignored.
float activated(const ActivateArgs& args, float gate, float up, bool gated);

// out[t] = x[t] · weight for each row t.
struct ProductArgs {
  TensorView x;       // F32 [tokens, in]
  TensorView weight;  // F32 [in, out]
  TensorView out;     // F32 [tokens, out]
};
void product(ExecContext& ctx, const ProductArgs& args);

// Calls body(begin, end) for pieces of [0, count) on the context's threads, or inline if it has
// none.
template <class F>
void for_range(ExecContext& ctx, long count, long grain, const F& body) {
  if (ctx.threads != nullptr) {
    ctx.threads->parallel_for(count, grain, body);
  } else if (count > 0) {
    body(0, count);
  }
}

}  // namespace bl::ref
