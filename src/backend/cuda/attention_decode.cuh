#pragma once
// A CTA of the decode kernel: four warps, each with its own keys (every fourth run of 16 of the
// piece), its own ring of copies and its own softmax; they are joined at the end.

#include <type_traits>

#include "backend/cuda/attention_join.cuh"
#include "backend/cuda/attention_task.cuh"
#include "backend/cuda/attention_tile.cuh"
#include "backend/cuda/kv_write.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/rope.cuh"
#include "backend/cuda/warp_reduce.cuh"

namespace bl::cuda {

template <CacheType kType, int kDim>
struct DecodeRoom {
  static constexpr bool kHalf = kType == CacheType::kF16;
  static constexpr int kStages = (kHalf && kDim > 64) || kDim > 128 ? 2 : 4;
  static constexpr bool kQueryInRegisters = kDim <= 128;
  static constexpr int kTileHalves = kWarpKeys * kTileStride<kDim>;
  static constexpr int kQueryBytes = kQueryTile * kTileStride<kDim> * 2;
  static constexpr int kJoinBytes = JoinRoom<kDim>::kBytes;

  // Of a warp: its ring, and one tile where rows are expanded.
  static BL_HD int stage_bytes(int k_bytes, int v_bytes) {
    return kHalf ? 4 * kTileHalves : kWarpKeys * (k_bytes + v_bytes);
  }
  static BL_HD int warp_bytes(int k_bytes, int v_bytes) {
    return kStages * stage_bytes(k_bytes, v_bytes) + (kHalf ? 0 : 2 * kTileHalves);
  }
  static BL_HD int ring_bytes(int k_bytes, int v_bytes) {
    const int ring = kDecodeWarps * warp_bytes(k_bytes, v_bytes);
    return ring > kJoinBytes ? ring : kJoinBytes;
  }
  // And at the end the weights of pieces for the joining CTA: they fit in the ring.
  static_assert(kJoinBytes >= (kQueryTile * kMaxPieces + kDecodeWarps * kDim) * 4);
};

// A new token's key and value of a head as they are in a cache of binary16; zeros behind them.
template <int kDim>
struct FreshRows {
  alignas(16) __half key[kDim];
  alignas(16) __half value[kDim];
};

template <CacheType kType, int kDim>
class DecodeWarp {
 public:
  using Shape = DecodeRoom<kType, kDim>;

  // `queries`: the CTA's tile; `fresh`: the new key and value that are not read from the cache.
  __device__ __forceinline__ DecodeWarp(const AttentionParams& params, const DecodeTask& task,
                                        std::byte* ring, const __half* queries,
                                        const FreshRows<kDim>* fresh)
      : p_(params), task_(task), queries_(queries), fresh_(fresh) {
    const int warp = warp_index();
    lane_ = static_cast<int>(threadIdx.x) & 31;
    stage_bytes_ = Shape::stage_bytes(p_.k_row.bytes, p_.v_row.bytes);
    room_ = ring + warp * Shape::warp_bytes(p_.k_row.bytes, p_.v_row.bytes);
    next_ = task.begin + warp * kWarpKeys;
    if constexpr (Shape::kHalf) {
#pragma unroll 1
      for (int s = 0; s < Shape::kStages; ++s) {
        clear_columns<kDim, kWarpKeys>(team(), p_.k_row.dim, keys(s));
        clear_columns<kDim, kWarpKeys>(team(), p_.v_row.dim, values(s));
      }
    }
  }
  // Starts reading keys of earlier steps.
  __device__ __forceinline__ void open_old() {
#pragma unroll 1
    for (; opened_ < Shape::kStages; ++opened_) {
      const int end = min(next_ + kWarpKeys, task_.end);
      if (end > task_.span.past && fresh_ == nullptr) break;
      prefetch(opened_);
    }
  }
  // When the others are there.
  __device__ __forceinline__ void open_rest() {
#pragma unroll 1
    for (; opened_ < Shape::kStages; ++opened_) prefetch(opened_);
  }

  // After the queries are there.
  __device__ __forceinline__ void run(WarpSums<kDim>& sums) {
    sums.clear();
    std::uint32_t q[Shape::kQueryInRegisters ? kDim / 16 : 1][4];
    if constexpr (Shape::kQueryInRegisters) {
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) load_a<kDim>(q[k], queries_ + 16 * k);
    }
    const int warp = warp_index();
    int stage = 0;
    const bool plain =
        task_.span.tokens == 1 && p_.window <= 0 && p_.softcap <= 0.0f && p_.slopes == nullptr;
    RowRule rules[2];
    if (!plain) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        rules[h] = row_rule(p_, task_.span, task_.kv_head, task_.first_row + lane_ / 4 + 8 * h);
      }
    }
#pragma unroll 1
    for (int key = task_.begin + warp * kWarpKeys; key < task_.end;
         key += kWarpKeys * kDecodeWarps) {
      wait_copies<Shape::kStages - 1>();
      __syncwarp();
      if (fresh_ != nullptr) add_fresh(stage, task_.span.past - key);
      float score[2][4] = {};
      score_keys(stage, key, q, score);
      if (plain) {
        hide_later(key, score);
      } else {
        apply_rules(rules, key, score);
      }
      std::uint32_t weights[4];
      sums.weigh(score, weights);
      add_values(stage, key, weights, sums);
      __syncwarp();
      prefetch(stage);
      stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
    }
    wait_copies<0>();
  }

 private:
  __device__ __forceinline__ Team team() const { return {lane_, 32}; }
  __device__ __forceinline__ std::byte* raw(int stage) const {
    return room_ + stage * stage_bytes_;
  }
  __device__ __forceinline__ __half* keys(int stage) const {
    return reinterpret_cast<__half*>(Shape::kHalf ? raw(stage) : raw(Shape::kStages));
  }
  __device__ __forceinline__ __half* values(int stage) const {
    return Shape::kHalf ? keys(stage) + Shape::kTileHalves : keys(stage);
  }

  // Row `row` of a tile of binary16 is the new one, if it is one of the tile's.
  __device__ __forceinline__ void add_fresh(int stage, int row) {
    if (row < 0 || row >= kWarpKeys) return;
    constexpr int kChunks = kDim / 8;
#pragma unroll
    for (int i = lane_; i < 2 * kChunks; i += 32) {
      const int chunk = i % kChunks;
      __half* tile = i < kChunks ? keys(stage) : values(stage);
      const __half* from = i < kChunks ? fresh_->key : fresh_->value;
      reinterpret_cast<uint4*>(tile + row * kTileStride<kDim>)[chunk] =
          reinterpret_cast<const uint4*>(from)[chunk];
    }
    __syncwarp();
  }

  // copy_half_rows() where all rows are there: without a branch a row.
  __device__ __forceinline__ void copy_all_rows(const RowShape& row, const std::byte* from,
                                                __half* tile) const {
    constexpr int kChunks = kDim / 8;
    const int chunk = lane_ % kChunks;
    if (chunk * 8 >= row.dim) return;
    from += lane_ / kChunks * row.bytes + chunk * 16;
    tile += lane_ / kChunks * kTileStride<kDim> + chunk * 8;
#pragma unroll
    for (int r = 0; r < kWarpKeys * kChunks / 32; ++r) {
      copy_async(tile + r * (32 / kChunks) * kTileStride<kDim>, from, true);
      from += 32 / kChunks * row.bytes;
    }
  }

  // Starts copying the next keys of this warp, and counts as a group in any case.
  __device__ __forceinline__ void prefetch(int stage) {
    if (next_ < task_.end) {
      const int index = next_ / kPageSlots;
      const std::int64_t page =
          index < 32 ? __shfl_sync(kAllLanes, task_.lane_page, index) : __ldg(task_.pages + index);
      const int slot = task_.kv_head * kPageSlots + next_ % kPageSlots;
      const std::byte* k = p_.k + page * p_.k_page_bytes + slot * p_.k_row.bytes;
      const std::byte* v = p_.v + page * p_.v_page_bytes + slot * p_.v_row.bytes;
      if constexpr (Shape::kHalf) {
        const int present = (fresh_ != nullptr ? task_.span.past : task_.end) - next_;
        if (present >= kWarpKeys) {
          copy_all_rows(p_.k_row, k, keys(stage));
          copy_all_rows(p_.v_row, v, values(stage));
        } else {
          copy_half_rows<kDim, kWarpKeys>(team(), p_.k_row, k, present, keys(stage));
          copy_half_rows<kDim, kWarpKeys>(team(), p_.v_row, v, present, values(stage));
        }
      } else {
        copy_raw_rows<kWarpKeys>(team(), p_.k_row, k, raw(stage));
        copy_raw_rows<kWarpKeys>(team(), p_.v_row, v, raw(stage) + kWarpKeys * p_.k_row.bytes);
      }
      next_ += kWarpKeys * kDecodeWarps;
    }
    commit_copies();
  }

  template <int kQueries>
  __device__ __forceinline__ void score_keys(int stage, int key,
                                             const std::uint32_t (&q)[kQueries][4],
                                             float (&score)[2][4]) {
    if constexpr (!Shape::kHalf) {
      expand_rows<kType, kDim, kWarpKeys>(team(), p_.k_row, raw(stage), task_.end - key,
                                          keys(stage));
      __syncwarp();
    }
    const __half* tile = keys(stage);
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      std::uint32_t b[4];
      load_keys<kDim>(b, tile + 16 * k);
      if constexpr (Shape::kQueryInRegisters) {
        mma_16x8x16(score[0], q[k], b[0], b[1]);
        mma_16x8x16(score[1], q[k], b[2], b[3]);
      } else {
        std::uint32_t a[4];
        load_a<kDim>(a, queries_ + 16 * k);
        mma_16x8x16(score[0], a, b[0], b[1]);
        mma_16x8x16(score[1], a, b[2], b[3]);
      }
    }
    if constexpr (!Shape::kHalf) __syncwarp();
  }

  // Where nothing but a key's place counts, and there is one token.
  __device__ __forceinline__ void hide_later(int key, float (&score)[2][4]) const {
    const int last = task_.span.past - key - 2 * (lane_ & 3);  // column of the lane's first
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (8 * j + (e & 1) > last) score[j][e] = -INFINITY;
      }
    }
  }

  __device__ __forceinline__ void apply_rules(const RowRule (&rules)[2], int key,
                                              float (&score)[2][4]) const {
    const bool masked =
        key + kWarpKeys - 1 > task_.span.past ||
        (p_.window > 0 && key <= task_.span.past + task_.span.tokens - 1 - p_.window);
    if (!masked && p_.softcap <= 0.0f && p_.slopes == nullptr) return;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const RowRule& rule = rules[e / 2];
        const int column = key + 8 * j + 2 * (lane_ & 3) + (e & 1);
        const float ruled = ruled_score(p_, rule, score[j][e], column);
        score[j][e] = is_visible(p_, rule, column) ? ruled : -INFINITY;
      }
    }
  }

  __device__ __forceinline__ void add_values(int stage, int key, const std::uint32_t (&weights)[4],
                                             WarpSums<kDim>& sums) {
    if constexpr (!Shape::kHalf) {
      expand_rows<kType, kDim, kWarpKeys>(team(), p_.v_row, raw(stage) + kWarpKeys * p_.k_row.bytes,
                                          task_.end - key, values(stage));
      __syncwarp();
    }
    const __half* tile = values(stage);
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      std::uint32_t b[4];
      load_values<kDim>(b, tile + 16 * n);
      mma_16x8x16(sums.values[2 * n], weights, b[0], b[1]);
      mma_16x8x16(sums.values[2 * n + 1], weights, b[2], b[3]);
    }
  }

  const AttentionParams& p_;
  const DecodeTask& task_;
  const __half* queries_;
  const FreshRows<kDim>* fresh_;
  int opened_ = 0;
  std::byte* room_ = nullptr;
  int stage_bytes_ = 0;
  int lane_ = 0;
  int next_ = 0;
};

// The new token's key and value of the task's head, in groups of 32 elements that go round the
// warps. Where they come from and go to is worked out before they are there.
template <CacheType kType, int kDim>
class FreshGroups {
 public:
  __device__ __forceinline__ FreshGroups(const FreshTokens& fresh, const DecodeTask& task,
                                         std::int64_t slot, const float2* turns)
      : fresh_(fresh) {
    const std::int64_t token = task.span.first_token;
    key_from_ = fresh.write.k.x[token] + task.kv_head * fresh.write.k.shape.dim;
    value_from_ = fresh.write.v.x[token] + task.kv_head * fresh.write.v.shape.dim;
    const std::int64_t row =
        static_cast<std::int64_t>(task.kv_head) * kPageSlots + slot % kPageSlots;
    const auto place = [&](const KvTarget& target) {
      return target.pages + slot / kPageSlots * target.page_bytes + row * target.shape.bytes;
    };
    key_to_ = place(fresh.write.k);
    value_to_ = place(fresh.write.v);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int e = first(i) + lane_index();
      const RopeParameters& p = fresh.k;
      pair_[i] = {e, e};
      if (e >= 2 * p.half) continue;
      is_first_[i] = p.interleaved ? e % 2 == 0 : e < p.half;
      const int pair = p.interleaved ? e / 2 : is_first_[i] ? e : e - p.half;
      pair_[i] = pair_places(p, pair);
      turn_[i] = turns[pair];
    }
  }
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int e = first(i) + lane_index();
      if (e < fresh_.write.k.shape.dim) {
        a_[i] = key_from_[pair_[i].a];
        b_[i] = key_from_[pair_[i].b];
      }
      if (e < fresh_.write.v.shape.dim) value_[i] = value_from_[e];
    }
  }
  // To the cache, and in binary16 to `rows` if that is how the cache has them.
  __device__ __forceinline__ void store(FreshRows<kDim>& rows) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float key = a_[i];
      if (first(i) + lane_index() < 2 * fresh_.k.half) {
        key = is_first_[i] ? turned_first(turn_[i], a_[i], b_[i])
                           : turned_second(turn_[i], a_[i], b_[i]);
      }
      if constexpr (kType == CacheType::kF16) {
        store_half(fresh_.write.k.shape, i, key, rows.key, key_to_);
        store_half(fresh_.write.v.shape, i, value_[i], rows.value, value_to_);
      } else {
#pragma unroll 1
        for (int is_value = 0; is_value < 2; ++is_value) {  // the code of an encoder once
          const RowShape shape =
              TypeOfRows<kType>::shape(is_value != 0 ? fresh_.write.v.shape : fresh_.write.k.shape);
          if (first(i) >= shape.dim) continue;
          encode_group(shape, first(i), is_value != 0 ? value_[i] : key,
                       is_value != 0 ? value_to_ : key_to_);
        }
      }
    }
  }

 private:
  static constexpr int kGroups = kDim / kKvScaleGroup;
  static constexpr int kCount = (kGroups + kDecodeWarps - 1) / kDecodeWarps;
  __device__ __forceinline__ static int first(int i) {
    return (warp_index() + i * kDecodeWarps) * kKvScaleGroup;
  }
  __device__ __forceinline__ static void store_half(const RowShape& shape, int i, float x,
                                                    __half* row, std::byte* to) {
    const int e = first(i) + lane_index();
    if (e >= kDim) return;
    const std::uint16_t half = saturated_half(x);
    row[e] = __ushort_as_half(half);
    if (e < shape.dim) reinterpret_cast<std::uint16_t*>(to)[e] = half;
  }

  const FreshTokens& fresh_;
  const float* key_from_;
  const float* value_from_;
  std::byte* key_to_;
  std::byte* value_to_;
  PairPlaces pair_[kCount];
  float2 turn_[kCount] = {};
  bool is_first_[kCount] = {};
  float a_[kCount] = {};
  float b_[kCount] = {};
  float value_[kCount] = {};
};

// The query rows of a new token's kv head whose heads turn as a whole, a pair a thread and turn.
// What does not depend on them is done before they are there.
template <int kDim, bool kRotated>
class FreshQueries {
 public:
  // Rotated groups must be those of neighbouring lanes.
  __device__ __forceinline__ static bool fits(const AttentionParams& p,
                                              const RopeParameters& rope) {
    return 2 * rope.half == p.k_row.dim &&
           (!kRotated || (!rope.interleaved && rope.half % kKvScaleGroup == 0)) &&
           p.group * rope.half <= kThreads * kAtOnce;
  }
  // The whole tile becomes zero; a barrier must follow before store().
  __device__ __forceinline__ static void clear(__half* tile) {
    auto* words = reinterpret_cast<uint4*>(tile);
    for (int i = static_cast<int>(threadIdx.x); i < kQueryTile * kTileStride<kDim> / 8;
         i += kThreads) {
      words[i] = make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ FreshQueries(const AttentionParams& p, const RopeParameters& rope,
                                          const DecodeTask& task, const float2* turns)
      : from_(p.q + task.span.first_token * p.q_stride +
              static_cast<std::int64_t>(task.kv_head) * p.group * p.k_row.dim),
        factor_(p.softcap > 0.0f ? p.scale / p.softcap : p.scale * kLog2E) {
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = static_cast<int>(threadIdx.x) + n * kThreads;
      head_[n] = i / rope.half;
      if (head_[n] >= p.group) {
        head_[n] = -1;
        continue;
      }
      const int pair = i - head_[n] * rope.half;
      places_[n] = pair_places(rope, pair);
      turn_[n] = turns[pair];
    }
    dim_ = p.k_row.dim;
  }
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      if (head_[n] < 0) continue;
      a_[n] = from_[head_[n] * dim_ + places_[n].a];
      b_[n] = from_[head_[n] * dim_ + places_[n].b];
    }
  }
  __device__ __forceinline__ void store(__half* tile) const {
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      if (head_[n] < 0) continue;  // of a whole warp where groups are rotated
      float first = turned_first(turn_[n], a_[n], b_[n]);
      float second = turned_second(turn_[n], a_[n], b_[n]);
      if constexpr (kRotated) {
        first = rotate_group(first, kKvScaleGroup);
        second = rotate_group(second, kKvScaleGroup);
      }
      __half* row = tile + head_[n] * kTileStride<kDim>;
      row[places_[n].a] = bounded(first);
      row[places_[n].b] = bounded(second);
    }
  }

 private:
  static constexpr int kThreads = kDecodeWarps * 32;
  static constexpr int kAtOnce =
      kQueryTile * kDim / 2 / kThreads < 4 ? kQueryTile * kDim / 2 / kThreads : 4;
  __device__ __forceinline__ __half bounded(float x) const {
    return __float2half_rn(fminf(fmaxf(x * factor_, -65504.0f), 65504.0f));
  }
  const float* from_;
  float factor_;
  int dim_;
  int head_[kAtOnce];
  PairPlaces places_[kAtOnce] = {};
  float2 turn_[kAtOnce] = {};
  float a_[kAtOnce] = {};
  float b_[kAtOnce] = {};
};

// Spans, pages and positions are of the whole step, and older keys of earlier steps: they are read
// before the kernel before has ended, and all is done then that can be. Behind that a CTA has few
// warps and one short piece of work: what counts is how many instructions follow each other.
template <CacheType kType, int kDim>
__global__ void __launch_bounds__(kDecodeWarps * 32, kDim <= 128 ? 3 : 2)
    decode_kernel(const __grid_constant__ AttentionParams p,
                  const __grid_constant__ DecodeLaunch launch,
                  const __grid_constant__ FreshTokens fresh) {
  allow_next();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Shape = DecodeRoom<kType, kDim>;
  constexpr bool kRotated = TypeOfRows<kType>::kRotated;
  using Queries = FreshQueries<kDim, kRotated>;
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ float2 turns[kMostTurns];
  __shared__ FreshRows<kDim> rows;
  auto* queries = reinterpret_cast<__half*>(shared);
  std::byte* ring = shared + Shape::kQueryBytes;
  auto* room = reinterpret_cast<float*>(ring);
  DecodeTask task;
  if (!find_task(p, launch, task)) {
    dependency_wait();
    return;
  }
  const bool writes = fresh.present && task.end > task.span.past;
  DecodeWarp<kType, kDim> warp(p, task, ring, queries, writes && Shape::kHalf ? &rows : nullptr);
  warp.open_old();
  const std::int64_t slot = fresh.present ? fresh.write.slots[task.span.first_token] : 0;
  const bool turns_whole = fresh.present && Queries::fits(p, fresh.q);
  if (turns_whole) Queries::clear(queries);
  if (fresh.present) fill_turns(fresh.q, task.span.first_token, turns);
  FreshGroups<kType, kDim> groups(fresh, task, slot, turns);
  if (turns_whole) {
    Queries turned(p, fresh.q, task, turns);
    dependency_wait();
    if (writes) groups.load();
    turned.load();
    if (writes) groups.store(rows);
    if (writes && !Shape::kHalf) {  // the new row is read back, while queries are made ready
      __syncthreads();
      warp.open_rest();
    }
    turned.store(queries);
  } else {
    dependency_wait();
    if (writes) {
      groups.load();
      groups.store(rows);
      __syncthreads();
      if (!Shape::kHalf) warp.open_rest();
    }
    load_queries<kDim, kQueryTile>(p, task.span, task.kv_head, task.first_row, kRotated, queries,
                                   [&](const float* head, int e) {
                                     return fresh.present ? rotated_element(fresh.q, turns, head, e)
                                                          : head[e];
                                   });
  }
  __syncthreads();
  warp.open_rest();
  WarpSums<kDim> sums;
  warp.run(sums);
  __syncthreads();
  const JoinRoom<kDim> joined{room};
  store_warp<kDim>(task, sums, joined);
  __syncthreads();
  if (task.pieces == 1) {
    using Values = std::conditional_t<kRotated, float, float4>;
    join_warps<Values>(p, task, joined, [&](int row, int e, const RowPart<Values>& part) {
      write_result<kRotated>(p, task, row, e, part);
    });
    return;
  }
  const std::int64_t first_part = first_part_row(launch, task.piece) + task.first_row;
  join_warps<float4>(p, task, joined, [&](int row, int e, const RowPart<float4>& part) {
    write_part(launch, first_part + row, p.v_row.dim, e, part);
  });
  if (arrives_last(launch, task)) join_pieces<kDim, kRotated>(p, launch, task, room);
#endif
}

}  // namespace bl::cuda
