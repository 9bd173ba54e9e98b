#pragma once
// The new token of a decode launch that fuses rope and the cache write: its key and value on their
// way to the cache, and its queries on their way to the CTA's query tile.

#include "backend/cuda/attention/attention_task.cuh"
#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/attention/kv_write.cuh"
#include "backend/cuda/attention/rope.cuh"
#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {

// A new token's key and value for one kv head, as a binary16 cache holds them, padded with zeros.
template <int kDim>
struct FreshRows {
  alignas(16) __half key[kDim];
  alignas(16) __half value[kDim];
};

// Applies rope to the new token's key for the task's kv head, and writes key and value to the
// cache. Groups of 32 elements are dealt to the first warps in turn. The constructor computes all
// addresses before pdl_wait(); load() and store() follow it.
template <CacheTypes kTypes, int kDim>
class FreshGroups {
 public:
  __device__ __forceinline__ FreshGroups(const FreshTokens& fresh, const DecodeTask& task,
                                         std::int64_t slot, const float2* rope_table)
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
      turn_[i] = rope_table[pair];
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
  // Writes the rows to the cache and, where the cache is binary16, also to `rows`.
  __device__ __forceinline__ void store(FreshRows<kDim>& rows) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float key = a_[i];
      if (first(i) + lane_index() < 2 * fresh_.k.half) {
        key =
            is_first_[i] ? rope_first(turn_[i], a_[i], b_[i]) : rope_second(turn_[i], a_[i], b_[i]);
      }
      if constexpr (kTypes == CacheType::kF16) {
        store_half(fresh_.write.k.shape, i, key, rows.key, key_to_);
        store_half(fresh_.write.v.shape, i, value_[i], rows.value, value_to_);
      } else {
#pragma unroll 1
        for (int is_value = 0; is_value < 2;
             ++is_value) {  // a loop, so that the encoder's code exists once
          const RowShape shape = is_value != 0 ? TypeOfRows<kTypes.v>::shape(fresh_.write.v.shape)
                                               : TypeOfRows<kTypes.k>::shape(fresh_.write.k.shape);
          if (first(i) >= shape.dim) continue;
          encode_group<TypeOfRows<kTypes.k>::kWidths>(shape, first(i),
                                                      is_value != 0 ? value_[i] : key,
                                                      is_value != 0 ? value_to_ : key_to_);
        }
      }
    }
  }

 private:
  static constexpr int kGroups = kDim / kKvScaleGroup;
  static constexpr int kWarps = 4;  // heads of 128 have no work for more
  static constexpr int kCount = (kGroups + kWarps - 1) / kWarps;
  __device__ __forceinline__ static int first(int i) {
    return warp_index() < kWarps ? (warp_index() + i * kWarps) * kKvScaleGroup : kDim;
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

// Applies rope to the new token's query heads of a kv head and writes the query tile. It takes
// heads to which rope applies as a whole, one pair a thread at a time. The constructor does before
// pdl_wait() what does not depend on the queries.
template <int kDim, int kRows, bool kRotated>
class FreshQueries {
 public:
  // Whether this class can be used. Where integer caches need rotated queries (kRotated), the 32
  // elements of a scale group must lie in the lanes of one warp.
  __device__ __forceinline__ static bool fits(const AttentionParams& p,
                                              const RopeParameters& rope) {
    return 2 * rope.half == p.k_row.dim && blockDim.x >= kThreads &&
           (!kRotated || (!rope.interleaved && rope.half % kKvScaleGroup == 0)) &&
           p.group * rope.half <= kThreads * kAtOnce;
  }
  // Clears the whole tile; a barrier must follow before store().
  __device__ __forceinline__ static void clear(__half* tile) {
    auto* words = reinterpret_cast<uint4*>(tile);
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kTileStride<kDim> / 8;
         i += static_cast<int>(blockDim.x)) {
      words[i] = make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ FreshQueries(const AttentionParams& p, const RopeParameters& rope,
                                          const DecodeTask& task, const float2* rope_table)
      : from_(p.q + task.span.first_token * p.q_stride +
              static_cast<std::int64_t>(task.kv_head) * p.group * p.k_row.dim),
        factor_(p.softcap > 0.0f ? p.scale / p.softcap : p.scale * kLog2E) {
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = static_cast<int>(threadIdx.x) + n * kThreads;
      head_[n] = i / rope.half;
      if (threadIdx.x >= kThreads || head_[n] >= p.group) {
        head_[n] = -1;
        continue;
      }
      const int pair = i - head_[n] * rope.half;
      places_[n] = pair_places(rope, pair);
      turn_[n] = rope_table[pair];
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
      if (head_[n] < 0) continue;  // with kRotated, for all lanes of a warp or for none
      float first = rope_first(turn_[n], a_[n], b_[n]);
      float second = rope_second(turn_[n], a_[n], b_[n]);
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
  static constexpr int kThreads = kUsualWarps * 32;  // the most that take part
  static constexpr int kEach = (kRows * kDim / 2 + kThreads - 1) / kThreads;
  static constexpr int kAtOnce = kEach < 4 ? kEach : 4;
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

}  // namespace bl::cuda
