#pragma once
// What the attention kernels of every instruction set take and offer: plain data (kernels.h).
//
// Placement in a page. Values lie as rows. Keys lie sixteen slots together, so that a vector of
// sixteen keys' element d is one load and scores need neither transposition nor horizontal sums:
// of each run of 16 slots first the code atoms, [atoms][16 slots], then the scales,
// [groups][16 slots]. An atom is the smallest run of bytes of a row that holds whole elements.
//
// A row of scores is computed in one order, whatever block it is part of: products over d in
// order; keys in tiles of 64 at multiples of 64; spans of 512 keys have a softmax of their own and
// are joined in order. So results depend neither on the batch nor on chunks nor on threads.

#include <cstddef>
#include <cstdint>

#include "ops/kv_layout.h"

namespace bl::cpu {

inline constexpr int kLaneSlots = 16;  // slots of keys that lie together
inline constexpr int kTileKeys = 64;   // divides kPageSlots
inline constexpr int kSpanKeys = 512;  // a multiple of kPageSlots
inline constexpr int kSpanPages = kSpanKeys / kPageSlots;
inline constexpr int kBlockRows = 96;  // query rows (token, head) that share a decoded tile

// How rows of a cache are written: KvRow with its sizes worked out.
struct RowFormat {
  KvRow::Code code = KvRow::Code::kF32;
  int bits = 32;
  int dim = 0;
  std::size_t code_bytes = 0;
  std::size_t bytes = 0;
  std::size_t atom = 4;  // bytes of a code atom
};

// Softmax in progress of some rows: Σ p and Σ p · v for p = 2^(score − top).
struct PartialRows {
  float* top = nullptr;     // [rows]
  float* weight = nullptr;  // [rows]
  float* value = nullptr;   // [rows][value_stride]
  std::int64_t value_stride = 0;
};

// Queries that read one kv head. Scores are in powers of two: `q` holds queries times scale · log2
// e (or scale / softcap).
struct QueryBlock {
  int rows = 0;                            // at most kBlockRows
  const float* q = nullptr;                // [rows][k dim]
  const std::int32_t* position = nullptr;  // [rows], ascending
  const float* slope = nullptr;            // [rows] ALiBi slopes · log2 e, or null
  float softcap = 0.0f;                    // cap · log2 e, or 0
  std::int32_t window = 0;                 // keys each row sees, 0: all
};

// One span of keys of one kv head.
struct KeySpan {
  RowFormat k;
  RowFormat v;
  std::int32_t first = 0;                    // position of the first key, a multiple of kSpanKeys
  std::int32_t oldest = 0;                   // of the keys that some row sees
  std::int32_t last = 0;                     // the newest of them
  const std::byte* k_head[kSpanPages] = {};  // this head's rows in each page that rows can see
  const std::byte* v_head[kSpanPages] = {};
  // What the thread reads after this span, or null: while a tile is read, the one behind it is
  // fetched.
  const KeySpan* next = nullptr;
  bool fetched = false;  // the first tile has been, behind another span
};

// Room that a thread lends.
struct AttendRoom {
  float* keys = nullptr;    // [kTileKeys][k dim]
  float* values = nullptr;  // [kTileKeys][v dim rounded up to 16]
  float* scores = nullptr;  // [kBlockRows][kTileKeys]
};

// The last step: everything of a row is known.
struct FinishRow {
  const float* value = nullptr;  // [dim]
  float top = 0.0f;
  float weight = 0.0f;
  const float* sink = nullptr;  // · log2 e, or null
  bool rotated = false;
  int dim = 0;
  float* out = nullptr;  // [dim]
};

struct AttentionKernels {
  // out = rotated or plain x · factor
  void (*prepare_query)(const float* x, float factor, bool rotated, int dim, float* out);
  // A head's vector → its bytes in standard order (ops/kv_codec.h); `room`: [dim].
  void (*encode_row)(const RowFormat& format, const float* x, float* room, std::byte* row);
  // The softmax of a span for each row, rows without any key of it included (weight 0).
  void (*attend_span)(const QueryBlock& block, const KeySpan& span, const AttendRoom& room,
                      const PartialRows& out);
  // Joins the partial results of later keys to those of earlier ones.
  void (*join)(const PartialRows& earlier, const PartialRows& later, int rows, int dim);
  void (*finish)(const FinishRow& row);
  // Sixteen keys [dim][16], and one value row [dim rounded up to 16], decoded.
  void (*decode_keys)(const RowFormat& format, const std::byte* run, float* keys);
  void (*decode_value)(const RowFormat& format, const std::byte* row, float* values);
};

}  // namespace bl::cpu
