#pragma once
// What a CTA of the decode kernel works on: its launch, its keys and rows, new tokens it writes.

#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/attention/kv_write.cuh"
#include "backend/cuda/attention/rope.cuh"

namespace bl::cuda {

inline constexpr int kMostTurns = 128;  // pairs of a head that the decode kernel rotates

// New tokens that the kernel rotates and writes to the cache itself, one a span: the CTA whose
// piece holds a token's key writes it, with its value, and reads it back like older ones.
struct FreshTokens {
  bool present = false;
  RopeParameters q{};
  RopeParameters k{};
  KvWriteParameters write{};
};

// One launch: grid (pieces · row_tiles, kv heads, spans). As clusters, which have one tile of rows,
// the pieces of a (span, kv head) are one, its keys are shared out evenly, and there are no parts
// in memory.
struct DecodeLaunch {
  bool clusters = false;
  int first_head = 0;
  int row_tiles = 1;
  int span_rows = 1;
  int pieces = 1;
  int piece_keys = 0;
  float* values = nullptr;  // [span, kv head, piece][span_rows][v_dim], relative to `tops`
  float2* tops = nullptr;   // [span, kv head, piece][span_rows]: largest score, sum of weights
  std::uint32_t* counters = nullptr;  // [span][kCountersPerSpan], zero between launches
};

// What the cache type says of rows, so that a kernel has code for its own alone.
template <CacheType kType>
struct TypeOfRows {
  static constexpr KvRow::Code kCode = kType == CacheType::kF16   ? KvRow::Code::kF16
                                       : kType == CacheType::kFp8 ? KvRow::Code::kE4M3
                                                                  : KvRow::Code::kInt;
  static constexpr bool kRotated = kCode == KvRow::Code::kInt;
  static constexpr int kBits = kType == CacheType::kF16  ? 16  // no meaning for kAnyWidth
                               : kType == CacheType::kQ6 ? 6
                               : kType == CacheType::kQ4 ? 4
                                                         : 8;
  static constexpr Widths kWidths = kType == kAnyWidth ? Widths::kAny : Widths::kUsual;
  __device__ __forceinline__ static RowShape shape(RowShape row) {
    row.code = kCode;
    if constexpr (kType != kAnyWidth) row.bits = kBits;
    return row;
  }
};

// What a CTA works on.
struct DecodeTask {
  SpanEntry span;
  const std::int32_t* pages = nullptr;
  std::int32_t lane_page = 0;  // page `lane`, of which there may be more (kFewPages)
  int kv_head = 0;
  int first_row = 0;
  int rows = 0;   // at most kQueryTile
  int begin = 0;  // keys [begin, end)
  int end = 0;
  int piece = 0;
  int pieces = 0;  // of this span
  // In shared memory, of the columns of all heads of the kv head: where the next product has them.
  const std::uint16_t* places = nullptr;
};

// False where there is nothing to do. In a cluster a piece may be without keys.
template <DecodeCase kCase>
__device__ __forceinline__ bool find_task(const AttentionParams& p, const DecodeLaunch& launch,
                                          DecodeTask& task) {
  const auto span = static_cast<int>(blockIdx.z);
  task.pages = p.pages + static_cast<std::int64_t>(span) * p.page_stride;
  // Beside the entry, so that neither waits for the other.
  if (lane_index() < p.page_stride) task.lane_page = __ldg(task.pages + lane_index());
  const int4 entry = __ldg(reinterpret_cast<const int4*>(p.spans) + span);
  task.span = {entry.x, kCase == DecodeCase::kAny ? entry.y : 1, entry.z, 0};
  task.kv_head = launch.first_head + static_cast<int>(blockIdx.y);
  task.piece = static_cast<int>(blockIdx.x) / launch.row_tiles;
  task.first_row = static_cast<int>(blockIdx.x) % launch.row_tiles * kQueryTile;
  task.rows = min(task.span.tokens * p.group - task.first_row, kQueryTile);
  const int length = task.span.past + task.span.tokens;
  if constexpr (kCase == DecodeCase::kPlainAlone) {
    task.end = length;
    task.pieces = 1;
    return true;
  }
  const int first = first_key_of(task.span.past, p.window);
  const int piece_keys =
      launch.clusters ? even_piece_keys(length - first, launch.pieces) : launch.piece_keys;
  task.pieces = launch.clusters ? launch.pieces : (length - first + piece_keys - 1) / piece_keys;
  task.begin = first + task.piece * piece_keys;
  task.end = min(task.begin + piece_keys, length);
  return task.rows > 0 && task.piece < task.pieces;
}

}  // namespace bl::cuda
