#pragma once
// Keys, values and queries as tiles of binary16 in shared memory, and the arithmetic of scores,
// that the decode and the prefill kernel share. Scores are in units of log2(e), so that weights are
// powers of two.
//
// A tile is [rows][kDim + 8] halves: the 16 bytes between rows keep ldmatrix free of bank
// conflicts. Columns beyond the head's size, and rows beyond the sequence, are zero.

#include <cuda_fp16.h>

#include "backend/cuda/attention/attention_params.h"
#include "backend/cuda/attention/kv_codec.cuh"
#include "backend/cuda/device/async_copy.cuh"
#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/device/shared_address.cuh"
#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {

inline constexpr float kLog2E = 1.44269504088896340736f;

template <int kDim>
inline constexpr int kTileStride = kDim + 8;

// ---- Fragments

__device__ __forceinline__ void load_matrices(std::uint32_t (&m)[4], const __half* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(at))
               : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&m)[4], const __half* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(at))
               : "memory");
}

// A fragment (16 rows × 16 columns) of the tile whose first element is `at`.
template <int kDim>
__device__ __forceinline__ void load_a(std::uint32_t (&m)[4], const __half* at) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  load_matrices(m, at + (lane & 15) * kTileStride<kDim> + (lane >> 4) * 8);
}

// B fragments of 16 keys × 16 dimensions: {m0, m1} of keys 0 … 7, {m2, m3} of keys 8 … 15.
template <int kDim>
__device__ __forceinline__ void load_keys(std::uint32_t (&m)[4], const __half* at) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  load_matrices(m, at + ((lane >> 4) * 8 + (lane & 7)) * kTileStride<kDim> + (lane >> 3 & 1) * 8);
}

// B fragments of 16 keys × 16 dimensions: {m0, m1} of dimensions 0 … 7, {m2, m3} of 8 … 15.
template <int kDim>
__device__ __forceinline__ void load_values(std::uint32_t (&m)[4], const __half* at) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  load_matrices_transposed(m, at + (lane & 15) * kTileStride<kDim> + (lane >> 4) * 8);
}

// ---- Tiles of rows

// The threads that fill a tile together.
struct Team {
  int thread = 0;
  int threads = 0;
};

// Rows of binary16, `present` of kRows; asynchronous. Columns beyond row.dim are left alone.
template <int kDim, int kRows>
__device__ __forceinline__ void copy_half_rows(Team team, const RowShape& row,
                                               const std::byte* from, int present, __half* tile) {
  constexpr int kChunks = kDim / 8;  // divides the threads of a team
  const int chunk = team.thread % kChunks;
  if (chunk * 8 >= row.dim) return;
  const int stride = team.threads / kChunks;
  const std::byte* source = from + chunk * 16;
  __half* target = tile + chunk * 8;
#pragma unroll 1
  for (int r = team.thread / kChunks; r < kRows; r += stride) {
    copy_async(target + r * kTileStride<kDim>, source + (r < present ? r * row.bytes : 0),
               r < present);
  }
}

// The bytes of kRows rows as they lie in the page (16 rows are a multiple of 16 bytes);
// asynchronous.
template <int kRows>
__device__ __forceinline__ void copy_raw_rows(Team team, const RowShape& row, const std::byte* from,
                                              std::byte* to) {
  const int bytes = kRows * row.bytes;
  for (int i = team.thread * 16; i < bytes; i += team.threads * 16) {
    copy_async(to + i, from + i, true);
  }
}

// Elements [8 · chunk, 8 · chunk + 8) of a row where they are not all in one whole group: zeros
// beyond the row's end. Out of line: rare, and long.
template <Widths kWidths>
static __device__ __noinline__ uint4 decode_edge(const RowShape& row, const std::byte* at,
                                                 int chunk) {
  std::uint32_t words[4] = {};
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    const int e = 8 * chunk + i;
    if (e >= row.dim) break;
    const std::uint32_t half = half_of_float(decode_element<kWidths>(row, at, e));
    const std::uint32_t part = half << (16 * (i & 1));
    words[0] |= i / 2 == 0 ? part : 0u;
    words[1] |= i / 2 == 1 ? part : 0u;
    words[2] |= i / 2 == 2 ? part : 0u;
    words[3] |= i / 2 == 3 ? part : 0u;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// The same of a whole group, as halves.
template <CacheType kType, int kAlign>
__device__ __forceinline__ uint4 decode_whole(const RowShape& row, const std::byte* at, int chunk) {
  __half2 low[2];
  __half2 high[2];
  if constexpr (kType == CacheType::kFp8) {
    const uint2 codes = load_two_words<kAlign>(at + 8 * chunk);
    e4m3_quad_to_halves(codes.x, low);
    e4m3_quad_to_halves(codes.y, high);
  } else if constexpr (kType == kAnyWidth) {
    const int group = chunk / 4;
    const std::byte* words = at + group * (4 * row.bits);
    const EightCodes codes =
        eight_codes(row.bits, chunk % 4, [&](int i) { return load_word<kAlign>(words + 4 * i); });
    const __half2 scale = __half2half2(load_scale<kAlign>(at + row.code_bytes + 2 * group));
    quad_to_halves(row.bits, codes.first, scale, low);
    quad_to_halves(row.bits, codes.second, scale, high);
  } else {
    constexpr int kBits = RowReader<kType, kAlign>::kBits;
    const int group = chunk / 4;
    const uint2 codes = load_eight_codes<kBits, kAlign>(at + group * (4 * kBits), chunk % 4);
    const __half2 scale = __half2half2(load_scale<2>(at + row.code_bytes + 2 * group));
    quad_to_halves(kBits, codes.x, scale, low);
    quad_to_halves(kBits, codes.y, scale, high);
  }
  return make_uint4(word_of(low[0]), word_of(low[1]), word_of(high[0]), word_of(high[1]));
}

template <CacheType kType, int kAlign, int kDim, int kRows>
__device__ __forceinline__ void expand_aligned_rows(Team team, const RowShape& row,
                                                    const std::byte* raw, int present,
                                                    __half* tile) {
  // Neighbouring threads take neighbouring rows: stores of 16 bytes a row apart spread over all
  // banks.
  constexpr Widths kWidths = kType == kAnyWidth ? Widths::kAny : Widths::kUsual;
  const int whole = row.dim / kKvScaleGroup * (kKvScaleGroup / 8);
#pragma unroll 2
  for (int i = team.thread; i < kRows * (kDim / 8); i += team.threads) {
    const int r = i % kRows;
    const int chunk = i / kRows;
    uint4 halves = make_uint4(0, 0, 0, 0);
    if (r < present) {
      const std::byte* at = raw + r * row.bytes;
      halves = chunk < whole ? decode_whole<kType, kAlign>(row, at, chunk)
                             : decode_edge<kWidths>(row, at, chunk);
    }
    *reinterpret_cast<uint4*>(tile + r * kTileStride<kDim> + chunk * 8) = halves;
  }
}

// Coded rows in shared memory → tile, zeros where there is nothing.
template <CacheType kType, int kDim, int kRows>
__device__ __forceinline__ void expand_rows(Team team, const RowShape& row, const std::byte* raw,
                                            int present, __half* tile) {
  // Alignment of rows of whole tiles, and of the others. Words of codes of any width are at
  // multiples of 4, in rows that end with a short group anywhere.
  constexpr int kUsual = kDim <= 64 || kType == kAnyWidth ? 4 : 8;
  constexpr int kOthers = kType == kAnyWidth ? 1 : 2;
  if (row.bytes % kUsual == 0) {
    expand_aligned_rows<kType, kUsual, kDim, kRows>(team, row, raw, present, tile);
  } else {
    expand_aligned_rows<kType, kOthers, kDim, kRows>(team, row, raw, present, tile);
  }
}

// Zeros in the columns that copy_half_rows leaves alone.
template <int kDim, int kRows>
__device__ __forceinline__ void clear_columns(Team team, int dim, __half* tile) {
  const int columns = kDim - dim;
  if (columns == 0) return;
  for (int i = team.thread; i < kRows * columns; i += team.threads) {
    tile[i / columns * kTileStride<kDim> + dim + i % columns] = __half();
  }
}

// ---- Queries

// The token of a span that row `row` of a (span, kv head) is of; a division takes long.
__device__ __forceinline__ int token_of_row(const SpanEntry& span, int group, int row) {
  return span.tokens == 1 ? 0 : row / group;
}

// Row r of a (span, kv head): token r / group, head r % group of the group. Rows [first, first +
// kRows) → tile, rotated to meet the keys, in units that make scores powers of two. element(head,
// e): element e of a query, given a pointer to it; `rotates`: keys are integer codes. A warp has 32
// elements of a row at a time, of kAtOnce rows, whose loads are under way together.
template <int kDim, int kRows, class Element>
__device__ __forceinline__ void load_queries(const AttentionParams& p, const SpanEntry& span,
                                             int kv_head, int first, bool rotates, __half* tile,
                                             const Element& element) {
  constexpr int kAtOnce = 4;
  constexpr int kGroups = kDim / kKvScaleGroup;
  static_assert(kRows % kAtOnce == 0);
  const int rows = span.tokens * p.group - first;
  const int k_dim = p.k_row.dim;
  const float factor = p.softcap > 0.0f ? p.scale / p.softcap : p.scale * kLog2E;
#pragma unroll 1
  for (int i = warp_index(); i < kRows / kAtOnce * kGroups;
       i += static_cast<int>(blockDim.x) / 32) {
    const int r = i / kGroups * kAtOnce;
    const int d = i % kGroups * kKvScaleGroup;
    const int e = d + lane_index();
    __half* to = tile + r * kTileStride<kDim> + e;
    float x[kAtOnce] = {};
    if (r < rows && d < k_dim) {
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (r + k >= rows || e >= k_dim) continue;
        const int row = first + r + k;
        const int token = token_of_row(span, p.group, row);
        const int head = kv_head * p.group + row - token * p.group;
        x[k] = element(
            p.q + (span.first_token + token) * p.q_stride + static_cast<std::int64_t>(head) * k_dim,
            e);
      }
      if (rotates) {
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          x[k] = rotate_group(x[k], k_dim - d < kKvScaleGroup ? k_dim - d : kKvScaleGroup);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const float bounded = fminf(fmaxf(x[k] * factor, -65504.0f), 65504.0f);
      to[k * kTileStride<kDim>] = __float2half_rn(bounded);
    }
  }
}

template <int kDim, int kRows>
__device__ __forceinline__ void load_queries(const AttentionParams& p, const SpanEntry& span,
                                             int kv_head, int first, __half* tile) {
  load_queries<kDim, kRows>(p, span, kv_head, first, p.k_row.code == KvRow::Code::kInt, tile,
                            [](const float* head, int e) { return head[e]; });
}

// ---- Scores

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Accurate to a few units of 2^-23 of the range ±1, unlike tanh.approx.
__device__ __forceinline__ float bounded_tanh(float x) {
  return 1.0f - __fdividef(2.0f, power_of_two(2.0f * kLog2E * fminf(x, 40.0f)) + 1.0f);
}

// What a query row does to its scores.
struct RowRule {
  int position = 0;
  float slope = 0.0f;  // of a position, in units of log2(e)
};

__device__ __forceinline__ RowRule row_rule(const AttentionParams& p, const SpanEntry& span,
                                            int kv_head, int row) {
  const int bounded = min(row, span.tokens * p.group - 1);
  const int token = token_of_row(span, p.group, bounded);
  const int head = kv_head * p.group + bounded - token * p.group;
  const float slope = p.slopes != nullptr ? p.slopes[head] * kLog2E : 0.0f;
  return {span.past + token, slope};
}

__device__ __forceinline__ float ruled_score(const AttentionParams& p, const RowRule& rule,
                                             float score, int key) {
  if (p.softcap > 0.0f) score = p.softcap * kLog2E * bounded_tanh(score);
  return score + rule.slope * static_cast<float>(key - rule.position);
}

__device__ __forceinline__ bool is_visible(const AttentionParams& p, const RowRule& rule, int key) {
  return key <= rule.position && (p.window <= 0 || key > rule.position - p.window);
}

// Over the four lanes that hold a row of an accumulator.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

}  // namespace bl::cuda
