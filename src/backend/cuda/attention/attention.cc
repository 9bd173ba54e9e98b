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

// Rows of binary16 products on the tensor cores, copied in pieces of 16 bytes.
bool runs_on_tensor_cores(const KvLayout& layout, int compute_capability) {
  constexpr int kLargestHead = 256;
  return compute_capability >= 80 && layout.type != CacheType::kF32 && layout.k_dim % 8 == 0 &&
         layout.v_dim % 8 == 0 && std::max(layout.k_dim, layout.v_dim) <= kLargestHead;
}

bool runs_on_tensor_cores(ExecContext& ctx, const KvLayout& layout) {
  return runs_on_tensor_cores(layout, cuda_device(ctx).facts().compute_capability);
}

// What the kernels of a step can do with their results, all of them.
struct Kernels {
  bool halves = false;       // AttentionParams::staged_out
  bool stage_value = false;  // LeavingParams
};

// Where results go before they are halves in the order of their reader, if they don't go there at
// once: F32, or, from kernels that write halves, halves in the order of the heads. These need no
// power of two: results are means of values that are halves themselves.
class HalfResult {
 public:
  HalfResult(ExecContext& ctx, const AttentionArgs& args, const Kernels& kernels)
      : ctx_(ctx),
        half_(*args.staged_out),
        left_(is_staged_fragments(ctx, half_)),
        to_(act_f16_for(half_.reader)) {
    to_.rows = half_.rows.data;
    const Shape shape{args.q.shape[0], half_.reader->in()};
    if (left_ && kernels.stage_value) {
      place_ = staged_fragments_of(half_);
      return;
    }
    if (left_ || !kernels.halves) {
      between_ = ctx.scratch->take_f32(shape);
    } else if (to_.feature_of_k != nullptr) {
      between_ = ctx.scratch->take(DType::kF16, shape);
    }
  }
  void receive(AttentionParams& params) const {
    params.out_stride = half_.reader->in();
    if (place_) return;
    if (between_.dtype == DType::kF32 && !between_.empty()) {
      params.out = between_.as<float>();
    } else {
      params.staged_out = (between_.empty() ? half_.rows : between_).as<__half>();
    }
  }
  // Where kernels leave them, or null.
  const StagedFragments* left() const { return place_ ? &*place_ : nullptr; }
  void finish() const {
    if (place_) return;
    if (left_) return pack_staged(ctx_, between_, half_);
    if (between_.dtype == DType::kF32 && !between_.empty()) {
      ActF16Args rows{.x = between_, .to = to_, .out_scale = half_.row_scales};
      rows.row_largest = ctx_.scratch->take_f32({between_.rows()}).as<float>();
      find_largest(ctx_, between_, rows.row_largest);
      make_act_f16(ctx_, rows);
      return;
    }
    if (!between_.empty()) {
      gather_act_f16(ctx_, between_, to_, half_.row_scales);
      return;
    }
    multiply_act_scale(ctx_, cuda_device(ctx_).constant(true), 1.0f, half_.row_scales);
  }

 private:
  ExecContext& ctx_;
  const StagedInput& half_;
  bool left_;                             // as left_input.h says
  std::optional<StagedFragments> place_;  // by the kernels themselves
  ActF16 to_;
  TensorView between_;
};

// run(params, left) with results where they are wanted.
template <class Run>
void with_result(ExecContext& ctx, const AttentionArgs& args, AttentionParams params,
                 const Kernels& kernels, const Run& run) {
  if (args.staged_out == nullptr) {
    run(params, nullptr);
    return;
  }
  const HalfResult result(ctx, args, kernels);
  result.receive(params);
  run(params, result.left());
  result.finish();
}

// A step of prefill spans alone, whose kernel turns the queries.
bool prefill_rotates(ExecContext& ctx, const AttentionArgs& args, const DeviceSpanPlan& plan,
                     const RopeAndWriteArgs& rope) {
  const KvLayout& layout = args.cache.layout;
  return plan.host.decode_spans == 0 && plan.host.prefill_spans > 0 && leaves_turns(rope) &&
         rope.q.rotated == layout.k_dim && takes_hopper(ctx, params_of(args, plan), layout.type);
}

}  // namespace

KeyPrefetch plan_key_prefetch(const ExecContext& ctx, const AttentionArgs& args,
                              KeyPrefetchSite asker) {
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
      key_prefetch_of_piece(split, p.kv_heads, p.k_row.bytes + p.v_row.bytes, asker);
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
          .pieces = split.pieces,
          .piece_keys = split.clusters ? 0 : split.piece_keys,
          .keys = keys};
}

void attention(ExecContext& ctx, const AttentionArgs& args) {
  BL_CHECK(args.plan != nullptr);
  const auto& plan = static_cast<const DeviceSpanPlan&>(*args.plan);
  if (plan.host.spans() == 0) return;
  if (args.past_is_new && cuda_device(ctx).dependent_launch) {
    // Decode kernels read what is older than a span before the kernel before has ended, unless they
    // begin behind it.
    CudaDevice device = cuda_device(ctx);
    device.dependent_launch = false;
    ExecContext behind = ctx;
    behind.device = &device;
    return attention(behind, args);
  }
  const ArenaScope scope(*ctx.scratch);
  const KvLayout& layout = args.cache.layout;
  // Deterministic: a row has the same bits beside any others, and whatever else of its sequence is
  // new in this step. Only the exact kernel takes rows one by one.
  const bool exact = ctx.deterministic || !runs_on_tensor_cores(ctx, layout);
  const AttentionParams all = params_of(args, plan);
  const Kernels kernels{.halves = !exact && plan.host.decode_spans == 0,
                        .stage_value = !exact && decode_leaves(all, plan, layout.type)};
  with_result(ctx, args, all, kernels,
              [&](const AttentionParams& params, const StagedFragments* left) {
                if (exact) return attention_exact(ctx, params, plan);
                if (plan.host.decode_spans > 0) {
                  attention_decode(ctx, params, plan, layout.type, {.left = left});
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
  if (prefill_rotates(ctx, args, plan, rope)) {
    const ArenaScope scope(*ctx.scratch);
    auto* turns = ctx.scratch->take_f32({args.q.shape[0], rope.q.rotated}).as<float2>();
    write_and_leave_turns(ctx, rope, turns);
    with_result(ctx, args, params_of(args, plan), {.halves = true},
                [&](const AttentionParams& params, const StagedFragments*) {
                  attention_prefill(ctx, params, plan, layout.type, turns);
                });
    return;
  }
  if (plan.host.decode_spans == 0 || !decode_rotates(params_of(args, plan), plan, rope) ||
      !runs_on_tensor_cores(ctx, layout)) {
    rope_and_write(ctx, rope);
    attention(ctx, args);
    return;
  }
  const ArenaScope scope(*ctx.scratch);
  const AttentionParams all = params_of(args, plan);
  with_result(ctx, args, all, {.stage_value = decode_leaves(all, plan, layout.type)},
              [&](const AttentionParams& params, const StagedFragments* left) {
                attention_decode(ctx, params, plan, layout.type, {&rope, left});
              });
}

}  // namespace bl::cuda
