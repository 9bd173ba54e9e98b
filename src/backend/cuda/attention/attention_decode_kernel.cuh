#pragma once
// The decode kernel: FlashDecoding attention of a few new tokens over a paged KV cache.
//
// Spans: up to 8 tokens, or up to 64 behind a long past (most_decode_tokens). Cache types: all but
// F32. Cards: compute capability 8.0 and later; clusters from 9.0 on.
//
// Tiles: a CTA has up to 16 query rows (kQueryTile; kernels with kTiles = 1 have 8) and one KV
// split. Its 8 or 16 warps (fewer where shared memory is short) take runs of 16 keys (kWarpKeys) in
// turn. Every warp is its own producer and consumer: it has a cp.async ring of 3 or 4 stages, each
// with 16 rows of keys or of values, and its own online softmax. At the end the CTA's warps are
// combined, then the KV splits. With heads of 128 a stage is 4,352 bytes for binary16, and,
// dequantized in registers, 1,280 bytes for q4 and 2,304 bytes for q6, q8 and FP8 (DecodeConfig).
//
// mma.m16n8k16: keys and values are operand A (16 keys or 16 dimensions), queries are operand B,
// whose n is 8: the query heads of a kv head are seldom more.
//
// Bound: short contexts by latency (dependent instructions and one load from L2), long contexts by
// reading the cache from memory. Measured shares: bench/ladder/attention_decode.md.

#include <type_traits>

#include "backend/cuda/attention/attention_codes.cuh"
#include "backend/cuda/attention/attention_combine.cuh"
#include "backend/cuda/attention/attention_fresh.cuh"
#include "backend/cuda/attention/attention_ring.cuh"
#include "backend/cuda/attention/attention_specialization.cuh"
#include "backend/cuda/attention/attention_task.cuh"
#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {

// One warp's part of the attention: scores, online softmax and Σ P · V over its keys.
template <class Config>
class DecodeWarp {
 public:
  static constexpr CacheTypes kTypes = Config::kTypes;
  static constexpr int kDim = Config::kDim;
  static constexpr int kTiles = Config::kTiles;
  using Sums = WarpSums<kDim, kTiles>;

  // `queries`: the CTA's query tile in shared memory.
  __device__ __forceinline__ DecodeWarp(const AttentionParams& params, const DecodeTask& task,
                                        DecodeRing<Config>& ring, const __half* queries)
      : p_(params), task_(task), ring_(ring), queries_(queries), lane_(lane_index()) {}

  // Attends to all keys of this warp. The query tile must be complete.
  __device__ __forceinline__ void run(Sums& sums) {
    sums.clear();
    load_query_fragments();
    const bool plain = Config::kPlain || (task_.span.tokens == 1 && p_.window <= 0 &&
                                          p_.softcap <= 0.0f && p_.slopes == nullptr);
    RowRule rules[kTiles][2];
    if (!plain) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int row = task_.first_row + 8 * t + 2 * (lane_ & 3) + j;
          rules[t][j] = row_rule(p_, task_.span, task_.kv_head, row);
        }
      }
    }
#pragma unroll 1
    for (int key = task_.begin + warp_index() * kWarpKeys; key < task_.end; key += ring_.step()) {
      const int keys = ring_.acquire_keys(key);
      float score[kTiles][4];
      score_keys(keys, key, score);
      ring_.release();
      if (!plain) {
        apply_rules(rules, key, score);
      } else if (key + kWarpKeys - 1 > task_.span.past) {
        hide_later(key, score);
      }
      std::uint32_t probs[kTiles][2];
      sums.online_softmax(Config::kSlack, score, probs);
      add_values(ring_.acquire_values(key), key, probs, sums);
      ring_.release();
    }
    wait_copies<0>();
  }

 private:
  // The B fragments of the queries for dimensions 16k … 16k + 15.
  __device__ __forceinline__ void load_query(int k, std::uint32_t (&b)[kTiles][2]) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if constexpr (Config::kCodes) {
        // Permuted like the codes in the bytes of a word: even bytes, then odd bytes.
        const uint2 four = *reinterpret_cast<const uint2*>(
            queries_ + (8 * t + lane_ / 4) * kTileStride<kDim> + 16 * k + 4 * (lane_ & 3));
        b[t][0] = __byte_perm(four.x, four.y, 0x5410);
        b[t][1] = __byte_perm(four.x, four.y, 0x7632);
      } else {
        const __half* at =
            queries_ + (8 * t + lane_ / 4) * kTileStride<kDim> + 16 * k + 2 * (lane_ & 3);
        b[t][0] = *reinterpret_cast<const std::uint32_t*>(at);
        b[t][1] = *reinterpret_cast<const std::uint32_t*>(at + 8);
      }
    }
  }
  __device__ __forceinline__ void load_query_fragments() {
    if constexpr (Config::kQueryInRegisters) {
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) load_query(k, query_[k]);
    }
  }

  // Adds 16 keys × 16 dimensions (A fragment `a`) times the queries to `sum`.
  __device__ __forceinline__ void multiply_keys(int k, const std::uint32_t (&a)[4],
                                                float (&sum)[kTiles][4]) {
    if constexpr (Config::kQueryInRegisters) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) mma_16x8x16(sum[t], a, query_[k][t][0], query_[k][t][1]);
    } else {
      std::uint32_t b[kTiles][2];
      load_query(k, b);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) mma_16x8x16(sum[t], a, b[t][0], b[t][1]);
    }
  }

  __device__ __forceinline__ void score_keys(int stage, int key, float (&score)[kTiles][4]) {
    // Two accumulators, so that not every mma waits for the one before.
    float sums[2][kTiles][4] = {};
    if constexpr (Config::kCodes) {
      score_codes(ring_.raw(stage), sums);
    } else {
      const __half* tile = ring_.half_stage(stage);
      if constexpr (!Config::kHalf) tile = expand<kTypes.k>(p_.k_row, stage, key);
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) {
        std::uint32_t m[4];
        load_keys<kDim>(m, tile + 16 * k);
        multiply_keys(k, {m[0], m[2], m[1], m[3]}, sums[k & 1]);
      }
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) score[t][e] = sums[0][t][e] + sums[1][t][e];
    }
  }

  // Dequantizes a stage to the warp's binary16 tile, which lies behind its stages.
  template <CacheType kType>
  __device__ __forceinline__ const __half* expand(const RowShape& row, int stage, int key) {
    auto* tile = reinterpret_cast<__half*>(ring_.raw(Config::kStages));
    __syncwarp();
    expand_rows<kType, kDim, kWarpKeys>(ring_.team(), row, ring_.raw(stage), task_.end - key, tile);
    __syncwarp();
    return tile;
  }

  // Scores from coded keys: multiplies the codes of a group, then applies the group's scale.
  __device__ __forceinline__ void score_codes(const std::byte* tile, float (&sums)[2][kTiles][4]) {
    constexpr CacheType kType = kTypes.k;
    using Tile = CodeTile<kType, kDim>;
    RowScales<Tile::kGroups> scales[2];
    if constexpr (Tile::kScaled) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        scales[h].load(tile + (lane_ / 4 + 8 * h) * Tile::kStride + Tile::kScalesAt);
      }
    }
    constexpr int kOfGroup = Tile::kBits == 8 ? 2 : 1;  // chunks of a group
#pragma unroll
    for (int c = 0; c < Tile::kChunks; c += 2) {
      std::uint32_t m[4];
      std::uint32_t high[4] = {};
      load_matrices(m, chunk_address(tile, Tile::kStride, c));
      if constexpr (Tile::kHigh) {
        load_matrices(high, chunk_address(tile + Tile::kHighAt, Tile::kStride, c));
#pragma unroll
        for (int i = 0; i < 4; ++i) high[i] >>= (lane_ & 3) / 2 * 2;
      }
      float part[kTiles][4] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const WordPairs<kType> low(m[2 * i], high[2 * i]);
        const WordPairs<kType> up(m[2 * i + 1], high[2 * i + 1]);
        const int k = Tile::kBits == 8 ? c + i : 2 * (c + i);
        multiply_keys(k, {low.near.even, up.near.even, low.near.odd, up.near.odd}, part);
        if constexpr (Tile::kBits < 8) {
          multiply_keys(k + 1, {low.far.even, up.far.even, low.far.odd, up.far.odd}, part);
        }
        if (kOfGroup == 2 && i == 0) continue;
        const int group = (c + i) / kOfGroup;
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& sum = sums[group & 1][t][e];
            sum = Tile::kScaled ? fmaf(scales[e / 2].at(group), part[t][e], sum) : sum + part[t][e];
            part[t][e] = 0.0f;
          }
        }
      }
    }
  }

  // Causal mask of a span of one token, where neither windows nor changes of scores apply.
  __device__ __forceinline__ void hide_later(int key, float (&score)[kTiles][4]) const {
    const int last = task_.span.past - key - lane_ / 4;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (e / 2 * 8 > last) score[t][e] = -INFINITY;
      }
    }
  }

  __device__ __forceinline__ void apply_rules(const RowRule (&rules)[kTiles][2], int key,
                                              float (&score)[kTiles][4]) const {
    const bool masked =
        key + kWarpKeys - 1 > task_.span.past ||
        (p_.window > 0 && key <= task_.span.past + task_.span.tokens - 1 - p_.window);
    if (!masked && p_.softcap <= 0.0f && p_.slopes == nullptr) return;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const RowRule& rule = rules[t][e & 1];
        const int column = key + lane_ / 4 + e / 2 * 8;
        const float ruled = ruled_score(p_, rule, score[t][e], column);
        score[t][e] = is_visible(p_, rule, column) ? ruled : -INFINITY;
      }
    }
  }

  __device__ __forceinline__ void add_values(int stage, int key,
                                             const std::uint32_t (&probs)[kTiles][2], Sums& sums) {
    if constexpr (Config::kCodes) {
      add_codes(ring_.raw(stage), probs, sums);
      return;
    }
    const __half* tile = ring_.half_stage(stage);
    if constexpr (Config::kFragmentSource == FragmentSource::kTile)
      tile = expand<kTypes.v>(p_.v_row, stage, key);
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      std::uint32_t m[4];
      load_values<kDim>(m, tile + 16 * n);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        mma_16x8x16(sums.values[n][t], {m[0], m[2], m[1], m[3]}, probs[t][0], probs[t][1]);
      }
    }
  }

  // Adds P · V from coded values. A group's scales multiply P, which has fewer elements than the
  // codes.
  __device__ __forceinline__ void add_codes(const std::byte* tile,
                                            const std::uint32_t (&probs)[kTiles][2], Sums& sums) {
    constexpr CacheType kType = kTypes.v;
    using Tile = CodeTile<kType, kDim>;
    RowScales<Tile::kGroups>
        scales[4];  // of keys 2t, 2t + 1, 2t + 8 and 2t + 9, where t = lane mod 4
    if constexpr (Tile::kScaled) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 2 * (lane_ & 3) + i % 2 + i / 2 * 8;
        scales[i].load(tile + row * Tile::kStride + Tile::kScalesAt);
      }
    }
    constexpr int kOfGroup = Tile::kBits == 8 ? 2 : 1;
    std::uint32_t b[kTiles][2];
#pragma unroll
    for (int c = 0; c < Tile::kChunks; c += 2) {
      std::uint32_t m[4];
      std::uint32_t high[4] = {};
      load_matrices_transposed(m, chunk_address(tile, Tile::kStride, c));
      if constexpr (Tile::kHigh) {
        load_matrices_transposed(high, chunk_address(tile + Tile::kHighAt, Tile::kStride, c));
#pragma unroll
        for (int i = 0; i < 4; ++i) high[i] >>= lane_ / 16 * 2;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (i == 0 || kOfGroup == 1) {
          const int group = (c + i) / kOfGroup;
#pragma unroll
          for (int t = 0; t < kTiles; ++t) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              b[t][h] = Tile::kScaled ? times(probs[t][h],
                                              scale_pair(scales[2 * h], scales[2 * h + 1], group))
                                      : probs[t][h];
            }
          }
        }
        const WordPairs<kType> low(m[2 * i], high[2 * i]);
        const WordPairs<kType> up(m[2 * i + 1], high[2 * i + 1]);
        const int n = Tile::kBits == 8 ? c + i : 2 * (c + i);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          mma_16x8x16(sums.values[n][t], {low.near.even, low.near.odd, up.near.even, up.near.odd},
                      b[t][0], b[t][1]);
          if constexpr (Tile::kBits < 8) {
            mma_16x8x16(sums.values[n + 1][t], {low.far.even, low.far.odd, up.far.even, up.far.odd},
                        b[t][0], b[t][1]);
          }
        }
      }
    }
  }

  const AttentionParams& p_;
  const DecodeTask& task_;
  DecodeRing<Config>& ring_;
  const __half* queries_;
  std::uint32_t query_[Config::kQueryInRegisters ? kDim / 16 : 1][kTiles][2];
  int lane_;
};

// Starts copying DecodeTask::fragment_offsets to shared memory at `to`, in the cp.async group of
// the first keys. Returns `to`.
__device__ __forceinline__ const std::uint16_t* load_staged_offsets(const StagedParams& p,
                                                                    const DecodeTask& task,
                                                                    std::uint16_t* to) {
  constexpr int kEach = 16 / sizeof(std::uint16_t);
  const int columns = p.group * p.v_row.dim;  // v_row.dim is a multiple of kEach
  const std::uint16_t* from = p.staged.fragment_offset_of_feature + task.kv_head * columns;
  for (int i = static_cast<int>(threadIdx.x) * kEach; i < columns;
       i += static_cast<int>(blockDim.x) * kEach) {
    copy_async(to + i, from + i, true);
  }
  return to;
}

// Combines the partial results of the CTA's warps, then those of the KV splits, and writes the
// result. `shared`: the CTA's dynamic shared memory.
template <class Config, class Params>
__device__ __forceinline__ void combine_task(const Params& p, const DecodeLaunch& launch,
                                             const DecodeTask& task, std::byte* shared) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  constexpr int kDim = Config::kDim;
  constexpr bool kRotated = TypeOfRows<Config::kTypes.k>::kRotated;
  std::byte* rings = shared + Config::kRingsAt;
  const typename Config::Combine buffers{rings, Config::warp_bytes(p.k_row.bytes, p.v_row.bytes)};
  if (Config::kOneSplit ||
      (Config::kSpecialization != DecodeSpecialization::kPlainCluster && task.kv_splits == 1)) {
    using Values = std::conditional_t<kRotated, float, float4>;
    combine_warps<Values>(p, task, buffers, [&](int row, int e, const RowPartial<Values>& part) {
      write_result<kRotated>(p, task, row, e, part);
    });
    return;
  }
#if __CUDA_ARCH__ >= 900
  if constexpr (Config::kClusters) {
    if (launch.clusters) {
      auto& own = *reinterpret_cast<ClusterPartial<kDim>*>(shared + Config::kQueryBytes);
      combine_warps<float4>(p, task, buffers, [&](int row, int e, const RowPartial<float4>& part) {
        *reinterpret_cast<float4*>(own.values[row] + e) = part.value;
        if (e == 0) own.row_stats[row] = make_float2(part.max_score, part.exp_sum);
      });
      combine_cluster<kDim, kRotated>(p, task, own);
      return;
    }
  }
#endif
  const std::int64_t first_partial = first_partial_row(launch, task.kv_split) + task.first_row;
  combine_warps<float4>(p, task, buffers, [&](int row, int e, const RowPartial<float4>& part) {
    write_partial(launch, first_partial + row, p.v_row.dim, e, part);
  });
  if (arrives_last(launch, task)) {
    combine_splits<kDim, kRotated>(p, launch, task, reinterpret_cast<float*>(rings));
  }
#endif
}

// Grid (KV splits · row tiles, kv heads, spans). Spans, pages and positions do not change within a
// step, and older keys were written by earlier steps. The kernel reads all of these before
// pdl_wait(), and does everything else there that does not depend on the kernel before. After
// pdl_wait() each CTA has a short piece of work for few warps: its length is that of the chain of
// dependent instructions.
template <class Config, class Params>
__global__ void __launch_bounds__(Config::kMostWarps * 32,
                                  Config::kMostWarps == kUsualWarps && Config::kDim <= 128 ? 2 : 1)
    decode_kernel(const __grid_constant__ Params given,
                  const __grid_constant__ DecodeLaunch given_launch,
                  const __grid_constant__ FreshTokens given_fresh) {
  pdl_trigger();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Given = typename Config::Params;
  typename Given::template Of<Params> p = Given::attention(given);
  typename Given::template Of<DecodeLaunch> launch = Given::launch(given_launch);
  typename Given::template Of<FreshTokens> fresh = Given::fresh(given_fresh);
  constexpr int kDim = Config::kDim;
  constexpr bool kRotated = TypeOfRows<Config::kTypes.k>::kRotated;
  static_assert(kRotated == TypeOfRows<Config::kTypes.v>::kRotated);
  constexpr bool kHalf = Config::kHalf;
  using Queries = FreshQueries<kDim, Config::kRows, kRotated>;
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ float2 rope_table[kMaxRopePairs];
  __shared__ FreshRows<kDim> rows;
  auto* queries = reinterpret_cast<__half*>(shared);
  DecodeTask task;
  if (!find_task<Config::kSpecialization>(p, launch, task)) {
    pdl_wait();
    return;
  }
  if constexpr (std::is_same_v<Params, StagedParams>) {
    const int others =
        Config::shared_bytes(static_cast<int>(blockDim.x) / 32, p.k_row.bytes, p.v_row.bytes);
    task.fragment_offsets =
        load_staged_offsets(p, task, reinterpret_cast<std::uint16_t*>(shared + others));
  }
  const bool writes = fresh.present && task.begin <= task.span.past && task.end > task.span.past;
  DecodeRing<Config> ring(p, task, shared + Config::kRingsAt, writes && kHalf ? &rows : nullptr);
  ring.prefetch_past();
  const std::int64_t slot = fresh.present ? fresh.write.slots[task.span.first_token] : 0;
  const bool ropes_whole_head = Config::kPlain || (fresh.present && Queries::fits(p, fresh.q));
  if (ropes_whole_head) Queries::clear(queries);
  if (fresh.present) fill_rope_table(fresh.q, task.span.first_token, rope_table);
  FreshGroups<Config::kTypes, kDim> groups(fresh, task, slot, rope_table);
  if (ropes_whole_head) {
    Queries roped(p, fresh.q, task, rope_table);
    pdl_wait();
    if (writes) groups.load();
    roped.load();
    if (writes) groups.store(rows);
    if (writes && !kHalf) {  // the encoded row is read back while the queries are prepared
      __syncthreads();
      ring.prefetch_rest();
    }
    roped.store(queries);
  } else {
    pdl_wait();
    if (writes) {
      groups.load();
      groups.store(rows);
      __syncthreads();
      if (!kHalf) ring.prefetch_rest();
    }
    load_queries<kDim, Config::kRows>(
        p, task.span, task.kv_head, task.first_row, kRotated, queries,
        [&](const float* head, int e) {
          return fresh.present ? rotated_element(fresh.q, rope_table, head, e) : head[e];
        });
  }
  __syncthreads();
  ring.prefetch_rest();
  DecodeWarp<Config> warp(p, task, ring, queries);
  typename DecodeWarp<Config>::Sums sums;
  warp.run(sums);
  __syncwarp();
  store_warp<Config::kCodes>(
      task, sums,
      typename Config::Combine{shared + Config::kRingsAt,
                               Config::warp_bytes(p.k_row.bytes, p.v_row.bytes)});
  __syncthreads();
  combine_task<Config>(p, launch, task, shared);
#endif
}

}  // namespace bl::cuda
