#pragma once
// The prefill kernel for mma.sync and cp.async, after FlashAttention-2 (arXiv:2307.08691).
//
// Spans: prefill spans. Cache types: all but F32. Cards: compute capability 8.0 and later; on 9.0
// the kernel of attention_hopper_kernel.cuh takes binary16 caches with heads of 64 and 128.
//
// Tiles: 128 query rows (64 with heads above 128) × 64 keys. Four warps, each with 32 (16) query
// rows of its own, share the key and value tiles; all threads copy. Binary16 caches alternate:
// values are copied while scores are computed, and the next keys during P · V. Quantized caches
// copy the codes of the next tiles while the current ones, dequantized to binary16 tiles, are
// multiplied. Shared memory with heads of 128: 69,632 bytes, with heads of 64 36,864, with heads of
// 256 101,376; for quantized caches also the codes of 64 keys and values. Where those do not fit
// (heads of 256 on cards with 99 KB a CTA), codes are dequantized straight from global memory.
//
// Bound by the tensor cores (bench/ladder/attention_prefill.md).

#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/mma.cuh"
#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {

inline constexpr int kPrefillWarps = 4;
inline constexpr int kPrefillThreads = 32 * kPrefillWarps;

template <CacheTypes kTypes_, int kDim_>
struct PrefillConfig {
  static constexpr CacheTypes kTypes = kTypes_;
  static constexpr int kDim = kDim_;
  static constexpr bool kHalf = kTypes == CacheType::kF16;
  static constexpr int kRowTiles = kDim <= 128 ? 2 : 1;  // tiles of 16 query rows of a warp
  static constexpr int kRows = 16 * kRowTiles * kPrefillWarps;
  static constexpr int kQueryHalves = kRows * kTileStride<kDim>;
  static constexpr int kKeyHalves = kTileKeys * kTileStride<kDim>;

  // Shared memory: query, key and value tile, then the codes of the next keys and values.
  static constexpr int kTileBytes = 2 * (kQueryHalves + 2 * kKeyHalves);
  static int code_bytes(int k_bytes, int v_bytes) {
    return kHalf ? 0 : kTileKeys * (k_bytes + v_bytes);
  }
  // Smaller heads leave room for the codes on every card.
  static constexpr bool kMayLackCodeTiles = !kHalf && kDim > 128;
};

// The query rows and keys of a CTA.
struct PrefillTask {
  SpanEntry span;
  const std::int32_t* pages = nullptr;
  int kv_head = 0;
  int first_row = 0;
  int begin = 0;  // keys [begin, end); begin is a multiple of the tile
  int end = 0;
  int first_masked = 0;   // tiles that end beyond this key are masked for some row
  int last_windowed = 0;  // so are tiles that begin at or before this key
};

// Finds the task of this CTA. Returns false where there is nothing to do.
template <int kRows>
__device__ __forceinline__ bool find_task(const AttentionParams& p, PrefillTask& task) {
  const auto span = static_cast<int>(blockIdx.z);
  const int4 entry = __ldg(reinterpret_cast<const int4*>(p.spans) + span);
  task.span = {entry.x, entry.y, entry.z, 0};
  task.pages = p.pages + static_cast<std::int64_t>(span) * p.page_stride;
  task.kv_head = static_cast<int>(blockIdx.y);
  // The last rows see the most keys, so their tiles start first: the launch then ends evenly.
  task.first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int rows = task.span.tokens * p.group;
  if (task.first_row >= rows) return false;
  const int first_position = task.span.past + task.first_row / p.group;
  const int last_position = task.span.past + min(task.first_row + kRows - 1, rows - 1) / p.group;
  task.begin = first_key_of(first_position, p.window);
  task.end = last_position + 1;
  task.first_masked = first_position;
  task.last_windowed = p.window > 0 ? last_position - p.window : -1;
  return true;
}

// The work of a CTA.
template <class Config>
class PrefillCta {
 public:
  static constexpr CacheTypes kTypes = Config::kTypes;
  static constexpr int kDim = Config::kDim;
  static constexpr int kRowTiles = Config::kRowTiles;

  // `has_code_tiles`: behind the binary16 tiles there is room for the next codes.
  __device__ __forceinline__ PrefillCta(const AttentionParams& params, const PrefillTask& task,
                                        bool has_code_tiles, std::byte* shared)
      : p_(params),
        task_(task),
        queries_(reinterpret_cast<__half*>(shared)),
        keys_(queries_ + Config::kQueryHalves),
        values_(keys_ + Config::kKeyHalves),
        codes_(shared + Config::kTileBytes),
        has_code_tiles_(!Config::kMayLackCodeTiles || has_code_tiles),
        team_{static_cast<int>(threadIdx.x), kPrefillThreads},
        lane_(static_cast<int>(threadIdx.x) & 31) {}

  __device__ __forceinline__ void run() {
    if constexpr (Config::kHalf) {
      clear_columns<kDim, kTileKeys>(team_, p_.k_row.dim, keys_);
      clear_columns<kDim, kTileKeys>(team_, p_.v_row.dim, values_);
      copy_keys(task_.begin);
    } else {
      copy_codes(task_.begin);
    }
    load_queries<kDim, Config::kRows>(p_, task_.span, task_.kv_head, task_.first_row, queries_);
    clear();
    for (int key = task_.begin; key < task_.end; key += kTileKeys) {
      if constexpr (Config::kHalf) {
        step_of_halves(key);
      } else {
        step_of_codes(key);
      }
    }
    finish();
  }

 private:
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) out_[m][n][e] = 0.0f;
      }
      max_score_[m][0] = max_score_[m][1] = -INFINITY;
      exp_sum_[m][0] = exp_sum_[m][1] = 0.0f;
    }
  }

  // ---- Copies

  __device__ __forceinline__ const std::byte* rows_at(const std::byte* base,
                                                      std::int64_t page_bytes, const RowShape& row,
                                                      int key) const {
    const auto page = static_cast<std::int64_t>(__ldg(task_.pages + key / kPageSlots));
    return base + page * page_bytes + (task_.kv_head * kPageSlots + key % kPageSlots) * row.bytes;
  }
  __device__ __forceinline__ int present(int key) const {
    return task_.span.past + task_.span.tokens - key;
  }
  __device__ __forceinline__ void copy_keys(int key) const {
    if (key < task_.end) {
      copy_half_rows<kDim, kTileKeys>(team_, p_.k_row, cached_keys(key), present(key), keys_);
    }
    commit_copies();
  }
  __device__ __forceinline__ void copy_values(int key) const {
    copy_half_rows<kDim, kTileKeys>(team_, p_.v_row, cached_values(key), present(key), values_);
    commit_copies();
  }
  __device__ __forceinline__ std::byte* value_codes() const {
    return codes_ + kTileKeys * p_.k_row.bytes;
  }
  __device__ __forceinline__ const std::byte* cached_keys(int key) const {
    return rows_at(p_.k, p_.k_page_bytes, p_.k_row, key);
  }
  __device__ __forceinline__ const std::byte* cached_values(int key) const {
    return rows_at(p_.v, p_.v_page_bytes, p_.v_row, key);
  }
  __device__ __forceinline__ void copy_codes(int key) const {
    if (key < task_.end && has_code_tiles_) {
      copy_raw_rows<kTileKeys>(team_, p_.k_row, cached_keys(key), codes_);
      copy_raw_rows<kTileKeys>(team_, p_.v_row, cached_values(key), value_codes());
    }
    commit_copies();
  }

  // ---- Key tiles

  __device__ __forceinline__ void step_of_halves(int key) {
    wait_copies<0>();
    __syncthreads();  // the keys have arrived, and no warp reads the old values any more
    copy_values(key);
    score(key);
    wait_copies<0>();
    __syncthreads();  // the values have arrived, and no warp reads the keys any more
    copy_keys(key + kTileKeys);
    add_values();
  }

  __device__ __forceinline__ void step_of_codes(int key) {
    wait_copies<0>();
    __syncthreads();
    const std::byte* keys = has_code_tiles_ ? codes_ : cached_keys(key);
    const std::byte* values = has_code_tiles_ ? value_codes() : cached_values(key);
    expand_rows<kTypes.k, kDim, kTileKeys>(team_, p_.k_row, keys, present(key), keys_);
    expand_rows<kTypes.v, kDim, kTileKeys>(team_, p_.v_row, values, present(key), values_);
    __syncthreads();
    copy_codes(key + kTileKeys);
    score(key);
    add_values();
  }

  // Computes the scores of the key tile at `key` and turns them into probs_ (P).
  __device__ __forceinline__ void score(int key) {
    float scores[kRowTiles][kTileKeys / 8][4] = {};
    const int warp = warp_index();
    const __half* queries = queries_ + warp * 16 * kRowTiles * kTileStride<kDim>;
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      std::uint32_t a[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        load_a<kDim>(a[m], queries + m * 16 * kTileStride<kDim> + 16 * k);
      }
#pragma unroll
      for (int n = 0; n < kTileKeys / 16; ++n) {
        std::uint32_t b[4];
        load_keys<kDim>(b, keys_ + 16 * n * kTileStride<kDim> + 16 * k);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma_16x8x16(scores[m][2 * n], a[m], b[0], b[1]);
          mma_16x8x16(scores[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
    const bool masked = key + kTileKeys - 1 > task_.first_masked || key <= task_.last_windowed;
    if (masked || p_.softcap > 0.0f || p_.slopes != nullptr) apply_rules(key, scores);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) online_softmax(m, scores[m]);
  }

  __device__ __forceinline__ void apply_rules(int key,
                                              float (&scores)[kRowTiles][kTileKeys / 8][4]) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const RowRule rule = row_rule(p_, task_.span, task_.kv_head, row_of(m, h));
#pragma unroll
        for (int n = 0; n < kTileKeys / 8; ++n) {
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            const int column = key + 8 * n + 2 * (lane_ & 3) + (e & 1);
            const float ruled = ruled_score(p_, rule, scores[m][n][e], column);
            scores[m][n][e] = is_visible(p_, rule, column) ? ruled : -INFINITY;
          }
        }
      }
    }
  }

  // This lane's row in the lower (h = 0) or upper (h = 1) eight rows of row tile m.
  __device__ __forceinline__ int row_of(int m, int h) const {
    const int warp = warp_index();
    return task_.first_row + (warp * kRowTiles + m) * 16 + h * 8 + lane_ / 4;
  }

  // Updates maximum and Σ P of row tile m, rescales its result where the maximum rose, and stores
  // P.
  __device__ __forceinline__ void online_softmax(int m, float (&scores)[kTileKeys / 8][4]) {
    float base[2];
    float rescale[2];
    bool grown = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = -INFINITY;
#pragma unroll
      for (int n = 0; n < kTileKeys / 8; ++n) {
        most = fmaxf(most, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
      }
      const float next = fmaxf(max_score_[m][h], row_max(most));
      base[h] = next == -INFINITY ? 0.0f : next;
      grown |= next > max_score_[m][h];
      rescale[h] = power_of_two(max_score_[m][h] - base[h]);
      max_score_[m][h] = next;
    }
    if (__any_sync(kAllLanes, grown)) {
      exp_sum_[m][0] *= rescale[0];
      exp_sum_[m][1] *= rescale[1];
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) out_[m][n][e] *= rescale[e / 2];
      }
    }
#pragma unroll
    for (int n = 0; n < kTileKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        scores[n][e] = power_of_two(scores[n][e] - base[e / 2]);
        exp_sum_[m][e / 2] += scores[n][e];
      }
      probs_[m][n / 2][n % 2 * 2] = pack_halves(scores[n][0], scores[n][1]);
      probs_[m][n / 2][n % 2 * 2 + 1] = pack_halves(scores[n][2], scores[n][3]);
    }
  }

  __device__ __forceinline__ void add_values() {
#pragma unroll
    for (int k = 0; k < kTileKeys / 16; ++k) {
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        std::uint32_t b[4];
        load_values<kDim>(b, values_ + 16 * k * kTileStride<kDim> + 16 * n);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma_16x8x16(out_[m][2 * n], probs_[m][k], b[0], b[1]);
          mma_16x8x16(out_[m][2 * n + 1], probs_[m][k], b[2], b[3]);
        }
      }
    }
  }

  // ---- Results

  // Undoes the rotation of integer caches (ops/kv_codec.h), group by group. Element 8n + 2c + e of
  // a group is element e of this lane's pair in run n of eight, where c is the lane's index among
  // the four lanes of a row.
  __device__ __forceinline__ void rotate_out(int m, int h) {
    const int c = lane_ & 3;
#pragma unroll
    for (int group = 0; group < kDim / kKvScaleGroup; ++group) {
      float x[4][2];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float a = out_[m][4 * group + n][2 * h];
        const float b = out_[m][4 * group + n][2 * h + 1];
        x[n][0] = a + b;
        x[n][1] = a - b;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
#pragma unroll
          for (int stride = 1; stride < 4; stride *= 2) {
            const float other = __shfl_xor_sync(kAllLanes, x[n][e], stride);
            x[n][e] = (c & stride) != 0 ? other - x[n][e] : x[n][e] + other;
          }
        }
      }
      const int runs = min((p_.v_row.dim - group * kKvScaleGroup) / 8, 4);
#pragma unroll
      for (int e = 0; e < 2; ++e) join_runs(runs, x[0][e], x[1][e], x[2][e], x[3][e]);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        out_[m][4 * group + n][2 * h] = x[n][0];
        out_[m][4 * group + n][2 * h + 1] = x[n][1];
      }
    }
  }

  // The last steps of rotate_kv_head(), across the runs of eight of a group; the butterflies within
  // the runs are done.
  static __device__ __forceinline__ void join_runs(int runs, float& x0, float& x1, float& x2,
                                                   float& x3) {
    constexpr float kEighth = 0.35355339059327373f;  // 1/√8
    if (runs == 4) {
      const float a = x0 + x1;
      const float b = x0 - x1;
      const float c = x2 + x3;
      const float d = x2 - x3;
      x0 = (a + c) * (0.5f * kEighth);
      x1 = (b + d) * (0.5f * kEighth);
      x2 = (a - c) * (0.5f * kEighth);
      x3 = (b - d) * (0.5f * kEighth);
    } else if (runs == 2) {
      const float sum = x0 + x1;
      x1 = (x0 - x1) * 0.25f;
      x0 = sum * 0.25f;
    } else {
      const float sum = runs == 3 ? (x0 + x1 + x2) * (2.0f / 3.0f) : 0.0f;
      x0 = (x0 - sum) * kEighth;
      x1 = (x1 - sum) * kEighth;
      x2 = (x2 - sum) * kEighth;
    }
  }

  __device__ __forceinline__ void finish() {
    const int v_dim = p_.v_row.dim;
    const int rows = task_.span.tokens * p_.group;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (p_.v_row.code == KvRow::Code::kInt) rotate_out(m, h);
        float exp_sum = row_sum(exp_sum_[m][h]);
        const int row = row_of(m, h);
        if (row >= rows) continue;
        const int head = task_.kv_head * p_.group + row % p_.group;
        // The sum becomes infinite where the sink outweighs all keys; the result is then 0, as it
        // should.
        if (p_.sinks != nullptr) {
          exp_sum += power_of_two(p_.sinks[head] * kLog2E - max_score_[m][h]);
        }
        const float inverse = 1.0f / exp_sum;
        const std::int64_t at = (task_.span.first_token + row / p_.group) * p_.out_stride +
                                static_cast<std::int64_t>(head) * v_dim + 2 * (lane_ & 3);
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          if (8 * n >= v_dim) break;
          const float2 pair{out_[m][n][2 * h] * inverse, out_[m][n][2 * h + 1] * inverse};
          if (p_.staged_out != nullptr) {
            *reinterpret_cast<__half2*>(p_.staged_out + at + 8 * n) = __float22half2_rn(pair);
          } else {
            p_.out[at + 8 * n] = pair.x;
            p_.out[at + 8 * n + 1] = pair.y;
          }
        }
      }
    }
  }

  const AttentionParams& p_;
  const PrefillTask& task_;
  __half* queries_;
  __half* keys_;
  __half* values_;
  std::byte* codes_;
  bool has_code_tiles_;
  Team team_;
  int lane_;
  float out_[kRowTiles][kDim / 8][4];
  float max_score_[kRowTiles][2];
  float exp_sum_[kRowTiles][2];  // Σ P of this lane's columns alone; finish() adds the lanes up
  std::uint32_t probs_[kRowTiles][kTileKeys / 16][4];
};

// Grid (query tiles, kv heads, spans).
template <class Config>
__global__ void __launch_bounds__(kPrefillThreads, 2)
    prefill_kernel(const __grid_constant__ AttentionParams p, bool has_code_tiles) {
  pdl_trigger();
  pdl_wait();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) std::byte shared[];
  PrefillTask task;
  if (!find_task<Config::kRows>(p, task)) return;
  PrefillCta<Config> cta(p, task, has_code_tiles, shared);
  cta.run();
#endif
}

}  // namespace bl::cuda
