#pragma once
// Interface of the attention kernels of all instruction sets; plain data (see matmul_kernels.h).
//
// Layout of a page. Values are stored as rows. Keys are stored sixteen slots abreast, so that
// element d of sixteen keys is one vector load, and scores need no transposition and no horizontal
// sums: each run of 16 slots has first the code atoms, [atoms][16 slots], then the scales,
// [groups][16 slots]. An atom is the smallest run of bytes of a row that holds whole elements.
//
// The scores of a row are computed in the same order whatever block the row is in: products in
// order of d, keys in tiles of 64 at multiples of 64, a softmax of its own for each span of 512
// keys, and spans joined in order. So results depend neither on the batch nor on chunks nor on
// threads.

#include <cstddef>
#include <cstdint>

#include "ops/kv_layout.h"

namespace bl::cpu {

inline constexpr int kLaneSlots = 16;  // key slots that are stored abreast
inline constexpr int kTileKeys = 64;   // divides kPageSlots
inline constexpr int kSpanKeys = 512;  // a multiple of kPageSlots
inline constexpr int kSpanPages = kSpanKeys / kPageSlots;
inline constexpr int kBlockRows = 96;  // query rows (token, head) that share a decoded tile

// How rows of a cache are encoded: a KvRow with its sizes computed.
struct RowFormat {
  KvRow::Code code = KvRow::Code::kF32;
  int bits = 32;
  int dim = 0;
  std::size_t code_bytes = 0;
  std::size_t bytes = 0;
  std::size_t atom = 4;  // bytes of a code atom
};

// The softmax in progress of some rows: Σ p and Σ p · v with p = 2^(score − top).
struct PartialRows {
  float* top = nullptr;     // [rows]
  float* weight = nullptr;  // [rows]
  float* value = nullptr;   // [rows][value_stride]
  std::int64_t value_stride = 0;
};

// Query rows that read one kv head. Scores are exponents of two, so `q` is the queries times scale
// · log2 e (or scale / softcap).
struct QueryBlock {
  int rows = 0;                            // at most kBlockRows
  const float* q = nullptr;                // [rows][k dim]
  const std::int32_t* position = nullptr;  // [rows], ascending
  const float* slope = nullptr;            // [rows] ALiBi slopes · log2 e, or null
  float softcap = 0.0f;                    // cap · log2 e, or 0
  std::int32_t window = 0;                 // number of keys that each row sees; 0: all
};

// One span of keys of one kv head.
struct KeySpan {
  RowFormat k;
  RowFormat v;
  std::int32_t first = 0;                    // position of the first key, a multiple of kSpanKeys
  std::int32_t oldest = 0;                   // oldest key that some row sees
  std::int32_t last = 0;                     // newest key that some row sees
  const std::byte* k_head[kSpanPages] = {};  // this head's rows in each visible page
  const std::byte* v_head[kSpanPages] = {};
  // What the thread reads after this span, or null; its tiles are prefetched while this span is
  // read.
  const KeySpan* next = nullptr;
  bool fetched = false;  // whether the previous span has prefetched the first tile
};

// Scratch of one thread.
struct AttendRoom {
  float* keys = nullptr;    // [kTileKeys][k dim]
  float* values = nullptr;  // [kTileKeys][v dim rounded up to 16]
  float* scores = nullptr;  // [kBlockRows][kTileKeys]
};

// Input of the last step, when all keys of a row have been added.
struct FinishRow {
  const float* value = nullptr;  // [dim]
  float top = 0.0f;
  float weight = 0.0f;
  const float* sink = nullptr;  // sink · log2 e, or null
  bool rotated = false;
  int dim = 0;
  float* out = nullptr;  // [dim]
};

struct AttentionKernels {
  // out = x · factor, rotated if `rotated`.
  void (*prepare_query)(const float* x, float factor, bool rotated, int dim, float* out);
  // Encodes a head's vector to bytes in standard order (ops/kv_codec.h). `room` is scratch, [dim].
  void (*encode_row)(const RowFormat& format, const float* x, float* room, std::byte* row);
  // Computes the softmax of one span for each row. Rows that see none of its keys get weight 0.
  void (*attend_span)(const QueryBlock& block, const KeySpan& span, const AttendRoom& room,
                      const PartialRows& out);
  // Adds the partial results of later keys to those of earlier keys.
  void (*join)(const PartialRows& earlier, const PartialRows& later, int rows, int dim);
  void (*finish)(const FinishRow& row);
  // Decodes sixteen keys to [dim][16], and one value row to [dim rounded up to 16].
  void (*decode_keys)(const RowFormat& format, const std::byte* run, float* keys);
  void (*decode_value)(const RowFormat& format, const std::byte* row, float* values);
};

}  // namespace bl::cpu
