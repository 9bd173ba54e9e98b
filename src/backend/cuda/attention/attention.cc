// The ops `attention` and `rope_write_attend`: choose the kernels for the spans of a step, and
// where their results go.

#include <algorithm>
#include <optional>

#include "backend/cuda/attention/attention_decode.h"
#include "backend/cuda/attention/attention_exact.h"
#include "backend/cuda/attention/attention_hopper.h"
#include "backend/cuda/attention/attention_ops.h"
#include "backend/cuda/attention/attention_prefill.h"
#include "backend/cuda/attention/rope_kv_write.h"
#include "backend/cuda/device/cuda_device.h"
#include "backend/cuda/gemm/activations/act_f16.h"
#include "backend/cuda/gemm/activations/pack_staged.h"
#include "backend/cuda/gemm/fusion.h"
#include "backend/cuda/prefetch/key_prefetch.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

AttentionParams params_of(const AttentionArgs& args, const DeviceSpanPlan& plan) {
  const KvLayout& layout = args.cache.layout;
  return {.q = args.q.as<float>(),
          .out = args.out.as<float>(),
          .staged_out = nullptr,
          .q_stride = args.q.row_stride,
          .out_stride = args.out.row_stride,
          .k = args.cache.k,
          .v = args.cache.v,
          .k_page_bytes = static_cast<std::int64_t>(layout.k_page_bytes()),
          .v_page_bytes = static_cast<std::int64_t>(layout.v_page_bytes()),
          .cache_pages = args.cache.pages,
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

// Whether the tensor-core kernels take this cache. They multiply binary16 and copy rows in 16-byte
// units, so heads are multiples of 8 elements.
bool runs_on_tensor_cores(const KvLayout& layout, int compute_capability) {
  constexpr int kLargestHead = 256;
  return compute_capability >= 80 && layout.type != CacheType::kF32 && layout.k_dim % 8 == 0 &&
         layout.v_dim % 8 == 0 && std::max(layout.k_dim, layout.v_dim) <= kLargestHead;
}

bool runs_on_tensor_cores(ExecContext& ctx, const KvLayout& layout) {
  return runs_on_tensor_cores(layout, cuda_device(ctx).facts().compute_capability);
}

// What all kernels of this step can do with their results.
struct Kernels {
  bool halves = false;       // write binary16 rows (AttentionParams::staged_out)
  bool stage_value = false;  // write the next GEMM's fragments (StagedParams)
};

// The result of attention as the staged input of the GEMM that reads it. Where the kernels cannot
// write it in the reader's layout directly, they write an intermediate result, F32 or binary16 in
// the order of the heads, and finish() converts it. A result in binary16 needs no row scale: it is
// a mean of values that are binary16 themselves.
class StagedResult {
 public:
  StagedResult(ExecContext& ctx, const AttentionArgs& args, const Kernels& kernels)
      : ctx_(ctx),
        staged_input_(*args.staged_out),
        is_fragments_(is_staged_fragments(ctx, staged_input_)),
        to_(act_f16_for(staged_input_.reader)) {
    to_.rows = staged_input_.rows.data;
    const Shape shape{args.q.shape[0], staged_input_.reader->in()};
    if (is_fragments_ && kernels.stage_value) {
      fragments_ = staged_fragments_of(staged_input_);
      return;
    }
    if (is_fragments_ || !kernels.halves) {
      intermediate_ = ctx.scratch->take_f32(shape);
    } else if (to_.feature_of_k != nullptr) {
      intermediate_ = ctx.scratch->take(DType::kF16, shape);
    }
  }
  void receive(AttentionParams& params) const {
    params.out_stride = staged_input_.reader->in();
    if (fragments_) return;
    if (intermediate_.dtype == DType::kF32 && !intermediate_.empty()) {
      params.out = intermediate_.as<float>();
    } else {
      params.staged_out = (intermediate_.empty() ? staged_input_.rows : intermediate_).as<__half>();
    }
  }
  // The fragments that the kernels write themselves, or null.
  const StagedFragments* staged() const { return fragments_ ? &*fragments_ : nullptr; }
  void finish() const {
    if (fragments_) return;
    if (is_fragments_) return pack_staged(ctx_, intermediate_, staged_input_);
    if (intermediate_.dtype == DType::kF32 && !intermediate_.empty()) {
      ActF16Args rows{.x = intermediate_, .to = to_, .out_scale = staged_input_.row_scales};
      rows.row_largest = ctx_.scratch->take_f32({intermediate_.rows()}).as<float>();
      find_largest(ctx_, intermediate_, rows.row_largest);
      make_act_f16(ctx_, rows);
      return;
    }
    if (!intermediate_.empty()) {
      gather_act_f16(ctx_, intermediate_, to_, staged_input_.row_scales);
      return;
    }
    multiply_act_scale(ctx_, cuda_device(ctx_).constant(true), 1.0f, staged_input_.row_scales);
  }

 private:
  ExecContext& ctx_;
  const StagedInput& staged_input_;
  bool is_fragments_;                         // the reader takes fragments (staged_input.h)
  std::optional<StagedFragments> fragments_;  // set where the kernels write them
  ActF16 to_;
  TensorView intermediate_;
};

// Calls run(params, fragments) so that the results end up in args.out or in args.staged_out.
template <class Run>
void with_result(ExecContext& ctx, const AttentionArgs& args, AttentionParams params,
                 const Kernels& kernels, const Run& run) {
  if (args.staged_out == nullptr) {
    run(params, nullptr);
    return;
  }
  const StagedResult result(ctx, args, kernels);
  result.receive(params);
  run(params, result.staged());
  result.finish();
}

// Whether the prefill kernel of this step can apply rope to the queries itself: the step has
// prefill spans alone, and they take the kernel for compute capability 9.0.
bool prefill_can_fuse_rope(ExecContext& ctx, const AttentionArgs& args, const DeviceSpanPlan& plan,
                           const RopeAndWriteArgs& rope) {
  const KvLayout& layout = args.cache.layout;
  return plan.host.decode_spans == 0 && plan.host.prefill_spans > 0 && can_write_rope_table(rope) &&
         rope.q.rotated == layout.k_dim && can_run_hopper(ctx, params_of(args, plan), layout.type);
}

}  // namespace

KeyPrefetch plan_key_prefetch(const ExecContext& ctx, const AttentionArgs& args,
                              KeyPrefetchSite site) {
  if (args.plan == nullptr || ctx.deterministic || args.window > 0) return {};
  const auto& plan = static_cast<const DeviceSpanPlan&>(*args.plan);
  const DeviceFacts& facts = cuda_device(ctx).facts();
  if (!facts.dependent_launch() || plan.host.decode_spans != 1 || plan.host.spans() != 1 ||
      plan.host.decode_tokens != 1 ||
      !runs_on_tensor_cores(args.cache.layout, facts.compute_capability)) {
    return {};
  }
  const AttentionParams p = params_of(args, plan);
  const DecodeSplit split = decode_split(ctx, p, plan, args.cache.layout.type);
  const KeyRange keys =
      key_prefetch_of_split(split, p.kv_heads, p.k_row.bytes + p.v_row.bytes, site);
  if (keys.begin == keys.end) return {};
  return {.k = p.k,
          .v = p.v,
          .k_page_bytes = p.k_page_bytes,
          .v_page_bytes = p.v_page_bytes,
          .span = p.spans,
          .pages = p.pages,
          .k_row_bytes = p.k_row.bytes,
          .v_row_bytes = p.v_row.bytes,
          .heads = p.kv_heads,
          .kv_splits = split.kv_splits,
          .split_keys = split.clusters ? 0 : split.split_keys,
          .keys = keys};
}

void attention(ExecContext& ctx, const AttentionArgs& args) {
  BL_CHECK(args.plan != nullptr);
  const auto& plan = static_cast<const DeviceSpanPlan&>(*args.plan);
  if (plan.host.spans() == 0) return;
  if (args.past_is_new && cuda_device(ctx).dependent_launch) {
    // Decode kernels read keys and values before the span while the kernel before may still be
    // running. Here that kernel may write them, so this launch must not overlap it.
    CudaDevice device = cuda_device(ctx);
    device.dependent_launch = false;
    ExecContext behind = ctx;
    behind.device = &device;
    return attention(behind, args);
  }
  const ArenaScope scope(*ctx.scratch);
  const KvLayout& layout = args.cache.layout;
  // Deterministic: the bits of a row must not depend on the other rows of the step, nor on how many
  // tokens of its sequence are new. Only the exact kernel computes each row by itself.
  const bool exact = ctx.deterministic || !runs_on_tensor_cores(ctx, layout);
  const AttentionParams all = params_of(args, plan);
  const Kernels kernels{.halves = !exact && plan.host.decode_spans == 0,
                        .stage_value = !exact && decode_can_stage(all, plan, layout.type)};
  with_result(ctx, args, all, kernels,
              [&](const AttentionParams& params, const StagedFragments* staged) {
                if (exact) return attention_exact(ctx, params, plan);
                if (plan.host.decode_spans > 0) {
                  attention_decode(ctx, params, plan, layout.type, {.staged = staged});
                }
                if (plan.host.prefill_spans > 0) attention_prefill(ctx, params, plan, layout.type);
              });
}

void rope_write_attend(ExecContext& ctx, const RopeAndWriteArgs& rope, const AttentionArgs& args) {
  BL_CHECK(args.plan != nullptr && rope.q.x.data == args.q.data);
  const auto& plan = static_cast<const DeviceSpanPlan&>(*args.plan);
  const KvLayout& layout = args.cache.layout;
  if (ctx.deterministic) {
    rope_and_write(ctx, rope);
    attention(ctx, args);
    return;
  }
  if (prefill_can_fuse_rope(ctx, args, plan, rope)) {
    const ArenaScope scope(*ctx.scratch);
    auto* rope_table = ctx.scratch->take_f32({args.q.shape[0], rope.q.rotated}).as<float2>();
    write_kv_and_rope_table(ctx, rope, rope_table);
    with_result(ctx, args, params_of(args, plan), {.halves = true},
                [&](const AttentionParams& params, const StagedFragments*) {
                  attention_prefill(ctx, params, plan, layout.type, rope_table);
                });
    return;
  }
  if (plan.host.decode_spans == 0 || !decode_can_fuse_rope(params_of(args, plan), plan, rope) ||
      !runs_on_tensor_cores(ctx, layout)) {
    rope_and_write(ctx, rope);
    attention(ctx, args);
    return;
  }
  const ArenaScope scope(*ctx.scratch);
  const AttentionParams all = params_of(args, plan);
  with_result(ctx, args, all, {.stage_value = decode_can_stage(all, plan, layout.type)},
              [&](const AttentionParams& params, const StagedFragments* staged) {
                attention_decode(ctx, params, plan, layout.type, {&rope, staged});
              });
}

}  // namespace bl::cuda
