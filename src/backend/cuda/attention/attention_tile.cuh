#pragma once
// Binary16 tiles of keys, values and queries in shared memory, their fragments, and the arithmetic
// of scores, shared by the decode and prefill kernels. Scores are multiplied by log2(e), so that P
// = exp2(score − maximum) needs no further multiplication.
//
// A tile is [rows][kDim + 8] binary16: the 16 bytes of padding keep ldmatrix free of bank
// conflicts. Columns beyond the head's size and rows beyond the sequence's end are zero.

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

// Loads the A fragment (16 rows × 16 columns) whose first element in the tile is `at`.
template <int kDim>
__device__ __forceinline__ void load_a(std::uint32_t (&m)[4], const __half* at) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  load_matrices(m, at + (lane & 15) * kTileStride<kDim> + (lane >> 4) * 8);
}

// Loads the B fragments of 16 keys × 16 dimensions for Q · Kᵀ: {m0, m1} for keys 0 … 7, {m2, m3}
// for keys 8 … 15.
template <int kDim>
__device__ __forceinline__ void load_keys(std::uint32_t (&m)[4], const __half* at) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  load_matrices(m, at + ((lane >> 4) * 8 + (lane & 7)) * kTileStride<kDim> + (lane >> 3 & 1) * 8);
}

// Loads the B fragments of 16 keys × 16 dimensions for P · V: {m0, m1} for dimensions 0 … 7, {m2,
// m3} for 8 … 15.
template <int kDim>
__device__ __forceinline__ void load_values(std::uint32_t (&m)[4], const __half* at) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  load_matrices_transposed(m, at + (lane & 15) * kTileStride<kDim> + (lane >> 4) * 8);
}

// ---- Tiles of rows

// The threads that fill a tile together: the index of this thread among them, and their number.
struct Team {
  int thread = 0;
  int threads = 0;
};

// Starts copying kRows binary16 rows, with zeros from row `present` on. Columns from row.dim on are
// not written.
template <int kDim, int kRows>
__device__ __forceinline__ void copy_half_rows(Team team, const RowShape& row,
                                               const std::byte* from, int present, __half* tile) {
  constexpr int kChunks = kDim / 8;  // divides the number of threads of a team
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

// Starts copying kRows rows byte by byte as they lie in the page. 16 rows of any cache type are a
// multiple of 16 bytes.
template <int kRows>
__device__ __forceinline__ void copy_raw_rows(Team team, const RowShape& row, const std::byte* from,
                                              std::byte* to) {
  const int bytes = kRows * row.bytes;
  for (int i = team.thread * 16; i < bytes; i += team.threads * 16) {
    copy_async(to + i, from + i, true);
  }
}

// Dequantizes elements [8 · chunk, 8 · chunk + 8) of a row where they are not all in one whole
// scale group. Elements beyond the row's end are zero. Not inlined, because it is rare and long.
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

// Dequantizes elements [8 · chunk, 8 · chunk + 8) of a row, which lie in a whole scale group.
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

// expand_rows() for rows aligned to kAlign bytes.
template <CacheType kType, int kAlign, int kDim, int kRows>
__device__ __forceinline__ void expand_aligned_rows(Team team, const RowShape& row,
                                                    const std::byte* raw, int present,
                                                    __half* tile) {
  // Neighbouring threads take neighbouring rows, so that their 16-byte stores spread over all
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

// Dequantizes kRows coded rows in shared memory to a binary16 tile, with zeros from row `present`
// on and beyond the head's size.
template <CacheType kType, int kDim, int kRows>
__device__ __forceinline__ void expand_rows(Team team, const RowShape& row, const std::byte* raw,
                                            int present, __half* tile) {
  // The alignment of rows of usual sizes, and of all others. With kAnyWidth, 32-bit words of codes
  // are aligned to 4, except in rows that end with a short group.
  constexpr int kUsual = kDim <= 64 || kType == kAnyWidth ? 4 : 8;
  constexpr int kOthers = kType == kAnyWidth ? 1 : 2;
  if (row.bytes % kUsual == 0) {
    expand_aligned_rows<kType, kUsual, kDim, kRows>(team, row, raw, present, tile);
  } else {
    expand_aligned_rows<kType, kOthers, kDim, kRows>(team, row, raw, present, tile);
  }
}

// Writes zeros to the columns that copy_half_rows() does not write.
template <int kDim, int kRows>
__device__ __forceinline__ void clear_columns(Team team, int dim, __half* tile) {
  const int columns = kDim - dim;
  if (columns == 0) return;
  for (int i = team.thread; i < kRows * columns; i += team.threads) {
    tile[i / columns * kTileStride<kDim> + dim + i % columns] = __half();
  }
}

// ---- Queries

// Returns the token of query row `row` of a (span, kv head), without a slow division in spans of
// one token.
__device__ __forceinline__ int token_of_row(const SpanEntry& span, int group, int row) {
  return span.tokens == 1 ? 0 : row / group;
}

// Loads query rows [first, first + kRows) of a (span, kv head) to a tile, multiplied by the score
// scale (and by log2(e), unless there is a soft cap). Row r is query head r mod group of token r /
// group. element(head, e) returns element e of the query at pointer `head`. `rotates`: the keys are
// integer codes, so queries are rotated like them. A warp loads 32 elements of kAtOnce rows at a
// time, to have several loads in flight.
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

// exp2, approximate.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// tanh with an absolute error of a few 2^-23, unlike tanh.approx.
__device__ __forceinline__ float bounded_tanh(float x) {
  return 1.0f - __fdividef(2.0f, power_of_two(2.0f * kLog2E * fminf(x, 40.0f)) + 1.0f);
}

// What the masks and score changes of a query row depend on.
struct RowRule {
  int position = 0;
  float slope = 0.0f;  // ALiBi slope a position, times log2(e)
};

__device__ __forceinline__ RowRule row_rule(const AttentionParams& p, const SpanEntry& span,
                                            int kv_head, int row) {
  const int bounded = min(row, span.tokens * p.group - 1);
  const int token = token_of_row(span, p.group, bounded);
  const int head = kv_head * p.group + bounded - token * p.group;
  const float slope = p.slopes != nullptr ? p.slopes[head] * kLog2E : 0.0f;
  return {span.past + token, slope};
}

// Applies the soft cap and the ALiBi slope to a score.
__device__ __forceinline__ float ruled_score(const AttentionParams& p, const RowRule& rule,
                                             float score, int key) {
  if (p.softcap > 0.0f) score = p.softcap * kLog2E * bounded_tanh(score);
  return score + rule.slope * static_cast<float>(key - rule.position);
}

// Whether the row sees the key: causal mask and window.
__device__ __forceinline__ bool is_visible(const AttentionParams& p, const RowRule& rule, int key) {
  return key <= rule.position && (p.window <= 0 || key > rule.position - p.window);
}

// Maximum and sum over the four lanes that hold a row of an accumulator.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

}  // namespace bl::cuda
