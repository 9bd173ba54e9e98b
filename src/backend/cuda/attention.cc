#include <algorithm>

#include "backend/cuda/attention_decode.h"
#include "backend/cuda/attention_exact.h"
#include "backend/cuda/attention_prefill.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_ops.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

AttentionParams params_of(const AttentionArgs& args, const DeviceSpanPlan& plan) {
  const KvLayout& layout = args.cache.layout;
  return {.q = args.q.as<float>(),
          .out = args.out.as<float>(),
          .q_stride = args.q.row_stride,
          .out_stride = args.out.row_stride,
          .k = args.cache.k,
          .v = args.cache.v,
          .k_page_bytes = static_cast<std::int64_t>(layout.k_page_bytes()),
          .v_page_bytes = static_cast<std::int64_t>(layout.v_page_bytes()),
          .k_row = row_shape(layout.k_row()),
          .v_row = row_shape(layout.v_row()),
          .kv_heads = layout.kv_heads,
          .group = static_cast<int>(args.q.shape[1]) / layout.kv_heads,
          .spans = plan.spans(),
          .pages = plan.pages(),
          .page_stride = plan.host.page_stride,
          .scale = args.scale,
          .softcap = args.softcap,
          .window = args.window,
          .sinks = args.sinks.as<float>(),
          .slopes = args.alibi_slopes.as<float>()};
}

// Rows of binary16 products on the tensor cores, copied in pieces of 16 bytes.
bool runs_on_tensor_cores(const KvLayout& layout, int compute_capability) {
  constexpr int kLargestHead = 256;
  return compute_capability >= 80 && layout.type != CacheType::kF32 && layout.k_dim % 8 == 0 &&
         layout.v_dim % 8 == 0 && std::max(layout.k_dim, layout.v_dim) <= kLargestHead;
}

}  // namespace

void attention(ExecContext& ctx, const AttentionArgs& args) {
  BL_CHECK(args.plan != nullptr);
  const auto& plan = static_cast<const DeviceSpanPlan&>(*args.plan);
  if (plan.host.spans() == 0) return;
  const ArenaScope scope(*ctx.scratch);
  const AttentionParams params = params_of(args, plan);
  const KvLayout& layout = args.cache.layout;
  if (!runs_on_tensor_cores(layout, cuda_ops_of(ctx).backend->facts().compute_capability)) {
    return attention_exact(ctx, params, plan);
  }
  if (plan.host.decode_spans > 0) attention_decode(ctx, params, plan, layout.type);
  if (plan.host.prefill_spans > 0) attention_prefill(ctx, params, plan, layout.type);
}

void rope_write_attend(ExecContext& ctx, const RopeAndWriteArgs& rope, const AttentionArgs& args) {
  BL_CHECK(args.plan != nullptr && rope.q.x.data == args.q.data);
  const auto& plan = static_cast<const DeviceSpanPlan&>(*args.plan);
  const AttentionParams params = params_of(args, plan);
  const KvLayout& layout = args.cache.layout;
  if (plan.host.decode_spans == 0 || !decode_rotates(params, plan, rope) ||
      !runs_on_tensor_cores(layout, cuda_ops_of(ctx).backend->facts().compute_capability)) {
    rope_and_write(ctx, rope);
    attention(ctx, args);
    return;
  }
  const ArenaScope scope(*ctx.scratch);
  attention_decode(ctx, params, plan, layout.type, &rope);
}

}  // namespace bl::cuda
