#pragma once
#include <cstdint>
#include <span>

#include "ops/exec_context.h"
#include "ops/kv_layout.h"
#include "ops/staged_input.h"
#include "tensor/tensor_view.h"

namespace bl {

enum class RopeStyle : std::uint8_t {
  kNeox,         // pairs (i, i + rotated/2)
  kInterleaved,  // pairs (2i, 2i + 1), GPT-J
};

// Rotates the first `rotated` elements of each head by position · inv_freq, in place:
// cos and sin are multiplied by `scale` (YaRN's and longrope's attention factor).
struct RopeArgs {
  TensorView x;                             // F32 [tokens, heads, head_dim], rows may be strided
  const std::int32_t* positions = nullptr;  // [tokens]
  TensorView inv_freq;                      // F32 [variants, rotated / 2]
  TensorView scale;                         // F32 [variants]
  const std::int32_t* variant = nullptr;    // [tokens]: row of inv_freq (its sequence's choice)
  std::int64_t rotated = 0;
  RopeStyle style = RopeStyle::kNeox;
};

// Writes keys and values of new tokens into their slots, encoding them as the cache type says.
struct KvWriteArgs {
  TensorView k;  // F32 [tokens, kv_heads, k_dim], rows may be strided
  TensorView v;  // F32 [tokens, kv_heads, v_dim]
  PagedKvView cache;
  const std::int64_t* slots = nullptr;  // [tokens]: page · kPageSlots + slot in the page
};

// rope(q), rope(k) and kv_write(write) in one launch; write.k is k.x, which is of no use
// afterwards: it may be turned or not. Tables, positions and style of q and k are the same.
struct RopeAndWriteArgs {
  RopeArgs q;
  RopeArgs k;
  KvWriteArgs write;
};

// One sequence of a step: rows [first_token, first_token + tokens) of q are its newest positions
// [past, past + tokens). Their keys and values are in the pages already.
struct SequenceSpan {
  std::int32_t first_token = 0;
  std::int32_t tokens = 0;
  std::int32_t past = 0;                // positions before this step
  const std::int32_t* pages = nullptr;  // [(past + tokens) / kPageSlots, rounded up]
};

// What a backend works out once a step for the attention of all layers (tables on the device, how
// sequences are split); made by Backend::plan_attention. Host backends need none.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
};

// Causal attention over pages, grouped queries: head h reads kv head h / (heads / kv_heads).
// score = scale · q·k, soft-capped when softcap > 0, + alibi_slope[h] · (key position − query
// position); keys of the last `window` positions (self included) when window > 0; `sinks` adds
// exp(sink[h]) to the softmax denominator.
struct AttentionArgs {
  TensorView q;    // F32 [tokens, heads, k_dim], rows may be strided
  TensorView out;  // F32 [tokens, heads, v_dim]
  PagedKvView cache;
  std::span<const SequenceSpan> sequences;
  const AttentionPlan* plan = nullptr;  // of these sequences
  float scale = 1.0f;
  float softcap = 0.0f;
  std::int32_t window = 0;
  TensorView sinks;                         // F32 [heads] or empty
  TensorView alibi_slopes;                  // F32 [heads] or empty
  const StagedInput* staged_out = nullptr;  // in place of out, which may be empty
  // Keys before a span's own may be of this step as well, not of earlier ones alone.
  bool past_is_new = false;
};

}  // namespace bl
