#pragma once
// A CTA of the decode kernel: warps, each with its own keys (every so many runs of 16 of the
// piece), its own ring of copies and its own softmax; they are joined at the end.
//
// Keys and values are the A operands of products and queries the B operand, whose tiles are eight:
// the heads of a group are seldom more.

#include <type_traits>

#include "backend/cuda/attention/attention_case.cuh"
#include "backend/cuda/attention/attention_codes.cuh"
#include "backend/cuda/attention/attention_fresh.cuh"
#include "backend/cuda/attention/attention_join.cuh"
#include "backend/cuda/attention/attention_ring.cuh"
#include "backend/cuda/attention/attention_task.cuh"
#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {

template <class Room>
class DecodeWarp {
 public:
  static constexpr CacheTypes kTypes = Room::kTypes;
  static constexpr int kDim = Room::kDim;
  static constexpr int kTiles = Room::kTiles;
  using Sums = WarpSums<kDim, kTiles>;

  // `queries`: the CTA's tile.
  __device__ __forceinline__ DecodeWarp(const AttentionParams& params, const DecodeTask& task,
                                        DecodeRing<Room>& ring, const __half* queries)
      : p_(params), task_(task), ring_(ring), queries_(queries), lane_(lane_index()) {}

  // After the queries are there.
  __device__ __forceinline__ void run(Sums& sums) {
    sums.clear();
    load_query_fragments();
    const bool plain = Room::kPlain || (task_.span.tokens == 1 && p_.window <= 0 &&
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
      const int keys = ring_.open_keys(key);
      float score[kTiles][4];
      score_keys(keys, key, score);
      ring_.close();
      if (!plain) {
        apply_rules(rules, key, score);
      } else if (key + kWarpKeys - 1 > task_.span.past) {
        hide_later(key, score);
      }
      std::uint32_t weights[kTiles][2];
      sums.weigh(Room::kSlack, score, weights);
      add_values(ring_.open_values(key), key, weights, sums);
      ring_.close();
    }
    wait_copies<0>();
  }

 private:
  // B fragments of queries, of each 16 dimensions.
  __device__ __forceinline__ void load_query(int k, std::uint32_t (&b)[kTiles][2]) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if constexpr (Room::kCodes) {
        // As the bytes of a word of codes lie: even ones, then odd ones.
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
    if constexpr (Room::kQueryInRegisters) {
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) load_query(k, query_[k]);
    }
  }

  // Keys as the A operand: 16 keys × 16 dimensions.
  __device__ __forceinline__ void multiply_keys(int k, const std::uint32_t (&a)[4],
                                                float (&sum)[kTiles][4]) {
    if constexpr (Room::kQueryInRegisters) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) mma_16x8x16(sum[t], a, query_[k][t][0], query_[k][t][1]);
    } else {
      std::uint32_t b[kTiles][2];
      load_query(k, b);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) mma_16x8x16(sum[t], a, b[t][0], b[t][1]);
    }
  }

  __device__ __forceinline__ void score_keys(int entry, int key, float (&score)[kTiles][4]) {
    // Two sums, so that not every product waits for the one before.
    float sums[2][kTiles][4] = {};
    if constexpr (Room::kCodes) {
      score_codes(ring_.raw(entry), sums);
    } else {
      const __half* tile = ring_.half_entry(entry);
      if constexpr (!Room::kHalf) tile = expand<kTypes.k>(p_.k_row, entry, key);
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

  // The tile of binary16 of coded rows.
  template <CacheType kType>
  __device__ __forceinline__ const __half* expand(const RowShape& row, int entry, int key) {
    auto* tile = reinterpret_cast<__half*>(ring_.raw(Room::kEntries));
    __syncwarp();
    expand_rows<kType, kDim, kWarpKeys>(ring_.team(), row, ring_.raw(entry), task_.end - key, tile);
    __syncwarp();
    return tile;
  }

  // Products of a group's codes, then its scale.
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
    constexpr int kOfGroup = Tile::kBits == 8 ? 2 : 1;  // chunks
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

  // Where nothing but a key's place counts, and there is one token.
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

  __device__ __forceinline__ void add_values(int entry, int key,
                                             const std::uint32_t (&weights)[kTiles][2],
                                             Sums& sums) {
    if constexpr (Room::kCodes) {
      add_codes(ring_.raw(entry), weights, sums);
      return;
    }
    const __half* tile = ring_.half_entry(entry);
    if constexpr (Room::kWay == DecodeWay::kTile) tile = expand<kTypes.v>(p_.v_row, entry, key);
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      std::uint32_t m[4];
      load_values<kDim>(m, tile + 16 * n);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        mma_16x8x16(sums.values[n][t], {m[0], m[2], m[1], m[3]}, weights[t][0], weights[t][1]);
      }
    }
  }

  // A group's scales go to the weights, which are fewer than its codes.
  __device__ __forceinline__ void add_codes(const std::byte* tile,
                                            const std::uint32_t (&weights)[kTiles][2], Sums& sums) {
    constexpr CacheType kType = kTypes.v;
    using Tile = CodeTile<kType, kDim>;
    RowScales<Tile::kGroups> scales[4];  // of keys 2t, 2t + 1, 2t + 8, 2t + 9
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
              b[t][h] = Tile::kScaled ? times(weights[t][h],
                                              scale_pair(scales[2 * h], scales[2 * h + 1], group))
                                      : weights[t][h];
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
  DecodeRing<Room>& ring_;
  const __half* queries_;
  std::uint32_t query_[Room::kQueryInRegisters ? kDim / 16 : 1][kTiles][2];
  int lane_;
};

// DecodeTask::places, which come with the first keys. `to`: room for them.
__device__ __forceinline__ const std::uint16_t* load_staged_offsets(const LeavingParams& p,
                                                                    const DecodeTask& task,
                                                                    std::uint16_t* to) {
  constexpr int kEach = 16 / sizeof(std::uint16_t);
  const int columns = p.group * p.v_row.dim;  // heads are whole pieces
  const std::uint16_t* from = p.left.fragment_offset_of_feature + task.kv_head * columns;
  for (int i = static_cast<int>(threadIdx.x) * kEach; i < columns;
       i += static_cast<int>(blockDim.x) * kEach) {
    copy_async(to + i, from + i, true);
  }
  return to;
}

// The sums of a CTA's warps, then those of the pieces, to where they belong. `shared`: the CTA's.
template <class Room, class Params>
__device__ __forceinline__ void join_task(const Params& p, const DecodeLaunch& launch,
                                          const DecodeTask& task, std::byte* shared) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  constexpr int kDim = Room::kDim;
  constexpr bool kRotated = TypeOfRows<Room::kTypes.k>::kRotated;
  std::byte* rings = shared + Room::kRingsAt;
  const typename Room::Join joined{rings, Room::warp_bytes(p.k_row.bytes, p.v_row.bytes)};
  if (Room::kAlone || (Room::kCase != DecodeCase::kPlainCluster && task.pieces == 1)) {
    using Values = std::conditional_t<kRotated, float, float4>;
    join_warps<Values>(p, task, joined, [&](int row, int e, const RowPart<Values>& part) {
      write_result<kRotated>(p, task, row, e, part);
    });
    return;
  }
#if __CUDA_ARCH__ >= 900
  if constexpr (Room::kClusters) {
    if (launch.clusters) {
      auto& own = *reinterpret_cast<ClusterPart<kDim>*>(shared + Room::kQueryBytes);
      join_warps<float4>(p, task, joined, [&](int row, int e, const RowPart<float4>& part) {
        *reinterpret_cast<float4*>(own.values[row] + e) = part.value;
        if (e == 0) own.tops[row] = make_float2(part.top, part.weight);
      });
      join_cluster<kDim, kRotated>(p, task, own);
      return;
    }
  }
#endif
  const std::int64_t first_part = first_part_row(launch, task.piece) + task.first_row;
  join_warps<float4>(p, task, joined, [&](int row, int e, const RowPart<float4>& part) {
    write_part(launch, first_part + row, p.v_row.dim, e, part);
  });
  if (arrives_last(launch, task)) {
    join_pieces<kDim, kRotated>(p, launch, task, reinterpret_cast<float*>(rings));
  }
#endif
}

// Spans, pages and positions are of the whole step, and older keys of earlier steps: they are read
// before the kernel before has ended, and all is done then that can be. Behind that a CTA has few
// warps and one short piece of work: what counts is how many instructions follow each other.
template <class Room, class Params>
__global__ void __launch_bounds__(Room::kMostWarps * 32,
                                  Room::kMostWarps == kUsualWarps && Room::kDim <= 128 ? 2 : 1)
    decode_kernel(const __grid_constant__ Params given,
                  const __grid_constant__ DecodeLaunch given_launch,
                  const __grid_constant__ FreshTokens given_fresh) {
  pdl_trigger();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Given = typename Room::Params;
  typename Given::template Of<Params> p = Given::attention(given);
  typename Given::template Of<DecodeLaunch> launch = Given::launch(given_launch);
  typename Given::template Of<FreshTokens> fresh = Given::fresh(given_fresh);
  constexpr int kDim = Room::kDim;
  constexpr bool kRotated = TypeOfRows<Room::kTypes.k>::kRotated;
  static_assert(kRotated == TypeOfRows<Room::kTypes.v>::kRotated);
  constexpr bool kHalf = Room::kHalf;
  using Queries = FreshQueries<kDim, Room::kRows, kRotated>;
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ float2 turns[kMostTurns];
  __shared__ FreshRows<kDim> rows;
  auto* queries = reinterpret_cast<__half*>(shared);
  DecodeTask task;
  if (!find_task<Room::kCase>(p, launch, task)) {
    pdl_wait();
    return;
  }
  if constexpr (std::is_same_v<Params, LeavingParams>) {
    const int others =
        Room::shared_bytes(static_cast<int>(blockDim.x) / 32, p.k_row.bytes, p.v_row.bytes);
    task.places = load_staged_offsets(p, task, reinterpret_cast<std::uint16_t*>(shared + others));
  }
  const bool writes = fresh.present && task.begin <= task.span.past && task.end > task.span.past;
  DecodeRing<Room> ring(p, task, shared + Room::kRingsAt, writes && kHalf ? &rows : nullptr);
  ring.open_old();
  const std::int64_t slot = fresh.present ? fresh.write.slots[task.span.first_token] : 0;
  const bool turns_whole = Room::kPlain || (fresh.present && Queries::fits(p, fresh.q));
  if (turns_whole) Queries::clear(queries);
  if (fresh.present) fill_turns(fresh.q, task.span.first_token, turns);
  FreshGroups<Room::kTypes, kDim> groups(fresh, task, slot, turns);
  if (turns_whole) {
    Queries turned(p, fresh.q, task, turns);
    pdl_wait();
    if (writes) groups.load();
    turned.load();
    if (writes) groups.store(rows);
    if (writes && !kHalf) {  // the new row is read back, while queries are made ready
      __syncthreads();
      ring.open_rest();
    }
    turned.store(queries);
  } else {
    pdl_wait();
    if (writes) {
      groups.load();
      groups.store(rows);
      __syncthreads();
      if (!kHalf) ring.open_rest();
    }
    load_queries<kDim, Room::kRows>(
        p, task.span, task.kv_head, task.first_row, kRotated, queries,
        [&](const float* head, int e) {
          return fresh.present ? rotated_element(fresh.q, turns, head, e) : head[e];
        });
  }
  __syncthreads();
  ring.open_rest();
  DecodeWarp<Room> warp(p, task, ring, queries);
  typename DecodeWarp<Room>::Sums sums;
  warp.run(sums);
  __syncwarp();
  store_warp<Room::kCodes>(
      task, sums,
      typename Room::Join{shared + Room::kRingsAt, Room::warp_bytes(p.k_row.bytes, p.v_row.bytes)});
  __syncthreads();
  join_task<Room>(p, launch, task, shared);
#endif
}

}  // namespace bl::cuda
