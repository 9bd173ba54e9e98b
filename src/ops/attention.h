#pragma once
#include <cstdint>
#include <span>

#include "ops/exec_context.h"
#include "ops/kv_layout.h"
#include "ops/staged_input.h"
#include "tensor/tensor_view.h"

namespace bl {

enum class RopeStyle : std::uint8_t {
  kNeox,         // rotates the pairs (i, i + rotated/2)
  kInterleaved,  // rotates the pairs (2i, 2i + 1), as GPT-J does
};

// Rotates the first `rotated` elements of each head by the angle position · inv_freq, in place.
// Cosine and sine are multiplied by `scale` (the attention factor of YaRN and longrope).
struct RopeArgs {
  TensorView x;                             // F32 [tokens, heads, head_dim], rows may be strided
  const std::int32_t* positions = nullptr;  // [tokens]
  TensorView inv_freq;                      // F32 [variants, rotated / 2]
  TensorView scale;                         // F32 [variants]
  // [tokens]: the row of inv_freq and scale that the sequence uses.
  const std::int32_t* variant = nullptr;
  std::int64_t rotated = 0;
  RopeStyle style = RopeStyle::kNeox;
};

// Encodes the keys and values of new tokens as the cache type says, and writes them to their slots.
struct KvWriteArgs {
  TensorView k;  // F32 [tokens, kv_heads, k_dim], rows may be strided
  TensorView v;  // F32 [tokens, kv_heads, v_dim]
  PagedKvView cache;
  const std::int64_t* slots = nullptr;  // [tokens]: page · kPageSlots + slot in the page
};

// rope(q), rope(k) and kv_write(write) in one launch. write.k is k.x; after the call it is
// undefined whether it has been rotated. q and k have the same tables, positions and style.
struct RopeAndWriteArgs {
  RopeArgs q;
  RopeArgs k;
  KvWriteArgs write;
};

// One sequence of a step: rows [first_token, first_token + tokens) of q are its newest positions
// [past, past + tokens). Their keys and values are already in the pages.
struct SequenceSpan {
  std::int32_t first_token = 0;
  std::int32_t tokens = 0;
  std::int32_t past = 0;                // number of positions before this step
  const std::int32_t* pages = nullptr;  // [pages_for(past + tokens)]
};

// What a backend computes once per step for the attention of all layers, such as tables on the
// device and how sequences are split. Made by Backend::plan_attention; null for host backends,
// which need none.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
};

// Causal attention over pages with grouped queries: head h reads kv head h / (heads / kv_heads).
// score = scale · q·k, soft-capped if softcap > 0, + alibi_slope[h] · (key position − query
// position). With window > 0 only the last `window` keys, including the query's own, take part.
// `sinks` adds exp(sink[h]) to the denominator of the softmax.
struct AttentionArgs {
  TensorView q;    // F32 [tokens, heads, k_dim], rows may be strided
  TensorView out;  // F32 [tokens, heads, v_dim]
  PagedKvView cache;
  std::span<const SequenceSpan> sequences;
  const AttentionPlan* plan = nullptr;  // made for these sequences
  float scale = 1.0f;
  float softcap = 0.0f;
  std::int32_t window = 0;
  TensorView sinks;         // F32 [heads] or empty
  TensorView alibi_slopes;  // F32 [heads] or empty
  // Receives the result in place of `out`, which may then be empty.
  const StagedInput* staged_out = nullptr;
  // Whether keys before a span's own may be new in this step, instead of coming from earlier steps
  // only.
  bool past_is_new = false;
};

}  // namespace bl
