#pragma once
// What a CTA of the decode kernel works on: its launch, its keys and query rows, and the new tokens
// that it writes.

#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/attention/kv_write.cuh"
#include "backend/cuda/attention/rope.cuh"

namespace bl::cuda {

inline constexpr int kMaxRopePairs = 128;  // rope pairs of a head that the decode kernel can handle

// New tokens, one a span, for which the kernel itself applies rope and writes the cache
// (`present`). The CTA whose KV split holds a token's key writes the key and its value.
struct FreshTokens {
  bool present = false;
  RopeParameters q{};
  RopeParameters k{};
  KvWriteParameters write{};
};

// One launch, with grid (kv_splits · row_tiles, kv heads, spans). With `clusters`, the KV splits of
// a (span, kv head) are a cluster: there is one query tile, the splits share the span's keys
// evenly, and no partial results are written to global memory.
struct DecodeLaunch {
  bool clusters = false;
  int first_head = 0;
  int row_tiles = 1;
  int span_rows = 1;
  int kv_splits = 1;
  int split_keys = 0;
  float* values = nullptr;            // [span, kv head, KV split][span_rows][v_dim]: Σ P · V
  float2* row_stats = nullptr;        // [span, kv head, KV split][span_rows]: maximum, Σ P
  std::uint32_t* counters = nullptr;  // [span][kCountersPerSpan], zero between launches
};

// The row format that a cache type implies, so that a kernel has code for its own format alone.
template <CacheType kType>
struct TypeOfRows {
  static constexpr KvRow::Code kCode = kType == CacheType::kF16   ? KvRow::Code::kF16
                                       : kType == CacheType::kFp8 ? KvRow::Code::kE4M3
                                                                  : KvRow::Code::kInt;
  static constexpr bool kRotated = kCode == KvRow::Code::kInt;
  static constexpr int kBits = kType == CacheType::kF16  ? 16  // for kAnyWidth it has no meaning
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

// The part of a launch that a CTA works on.
struct DecodeTask {
  SpanEntry span;
  const std::int32_t* pages = nullptr;
  std::int32_t lane_page = 0;  // pages[lane]; only the first kFewPages pages are kept like this
  int kv_head = 0;
  int first_row = 0;
  int rows = 0;   // at most kQueryTile
  int begin = 0;  // keys [begin, end)
  int end = 0;
  int kv_split = 0;
  int kv_splits = 0;  // of this span; other spans may have more
  // With StagedParams: where the next GEMM's fragments have the columns of the kv head's query
  // heads; in shared memory.
  const std::uint16_t* fragment_offsets = nullptr;
};

// Finds the task of this CTA. Returns false where there is nothing to do. In a cluster, a KV split
// without keys still takes part.
template <DecodeSpecialization kSpecialization>
__device__ __forceinline__ bool find_task(const AttentionParams& p, const DecodeLaunch& launch,
                                          DecodeTask& task) {
  const auto span = static_cast<int>(blockIdx.z);
  task.pages = p.pages + static_cast<std::int64_t>(span) * p.page_stride;
  // Loaded beside the span entry, so that neither load waits for the other.
  if (lane_index() < p.page_stride) task.lane_page = __ldg(task.pages + lane_index());
  const int4 entry = __ldg(reinterpret_cast<const int4*>(p.spans) + span);
  task.span = {entry.x, kSpecialization == DecodeSpecialization::kAny ? entry.y : 1, entry.z, 0};
  task.kv_head = launch.first_head + static_cast<int>(blockIdx.y);
  task.kv_split = static_cast<int>(blockIdx.x) / launch.row_tiles;
  task.first_row = static_cast<int>(blockIdx.x) % launch.row_tiles * kQueryTile;
  task.rows = min(task.span.tokens * p.group - task.first_row, kQueryTile);
  const int length = task.span.past + task.span.tokens;
  if constexpr (kSpecialization == DecodeSpecialization::kPlainOneSplit) {
    task.end = length;
    task.kv_splits = 1;
    return true;
  }
  const int first = first_key_of(task.span.past, p.window);
  const int split_keys =
      launch.clusters ? even_split_keys(length - first, launch.kv_splits) : launch.split_keys;
  task.kv_splits =
      launch.clusters ? launch.kv_splits : (length - first + split_keys - 1) / split_keys;
  task.begin = first + task.kv_split * split_keys;
  task.end = min(task.begin + split_keys, length);
  return task.rows > 0 && task.kv_split < task.kv_splits;
}

}  // namespace bl::cuda
