#pragma once
// Writes new keys and values to the cache. A unit of work is one scale group of one row, for a
// warp.

#include "backend/cuda/attention/kv_codec.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "ops/attention.h"

namespace bl::cuda {

// The keys, or the values, of a KvWriteArgs as a kernel parameter.
struct KvTarget {
  Rows<const float> x;  // [tokens], the heads of a token side by side
  std::byte* pages;
  std::int64_t page_bytes;
  RowShape shape;
};

struct KvWriteParameters {
  KvTarget k;
  KvTarget v;
  const std::int64_t* slots;
  int heads;
  Widths widths() const { return widths_of(k.shape, v.shape); }
  int units() const { return heads * (k.shape.groups + v.shape.groups); }
};

inline KvWriteParameters kv_write_parameters(const KvWriteArgs& args) {
  const KvLayout& layout = args.cache.layout;
  return {.k = {rows_of<const float>(args.k), args.cache.k,
                static_cast<std::int64_t>(layout.k_page_bytes()), row_shape(layout.k_row())},
          .v = {rows_of<const float>(args.v), args.cache.v,
                static_cast<std::int64_t>(layout.v_page_bytes()), row_shape(layout.v_row())},
          .slots = args.slots,
          .heads = layout.kv_heads};
}

// Writes group `unit` of the keys (or values) of token t. element(head, e) returns element e of the
// head at pointer `head`.
template <Widths kWidths, class Element>
__device__ __forceinline__ void write_group(const KvTarget& target, std::int64_t slot,
                                            std::int64_t t, int unit, const Element& element) {
  const int head = unit / target.shape.groups;
  const int first = (unit - head * target.shape.groups) * kKvScaleGroup;
  const float* x = target.x[t] + head * target.shape.dim;
  const int e = first + lane_index();
  const float y = e < target.shape.dim ? element(x, e) : 0.0f;
  const std::int64_t row = static_cast<std::int64_t>(head) * kPageSlots + slot % kPageSlots;
  encode_group<kWidths>(
      target.shape, first, y,
      target.pages + slot / kPageSlots * target.page_bytes + row * target.shape.bytes);
}

// Writes unit u of a token: units of its keys come first, then those of its values. key(head, e)
// returns element e of the key at pointer `head`.
template <Widths kWidths, class Key>
__device__ __forceinline__ void write_unit(const KvWriteParameters& p, std::int64_t t, int u,
                                           const Key& key) {
  const int k_units = p.heads * p.k.shape.groups;
  const std::int64_t slot = p.slots[t];
  if (u < k_units) {
    write_group<kWidths>(p.k, slot, t, u, key);
  } else {
    write_group<kWidths>(p.v, slot, t, u - k_units, [](const float* x, int e) { return x[e]; });
  }
}

}  // namespace bl::cuda
