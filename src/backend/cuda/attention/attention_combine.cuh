#pragma once
// The partial results of the decode kernel (running maximum, sum and Σ P · V of each query row),
// and how they are combined: over the warps of a CTA, then over the KV splits of a (span, kv head).
// Where the splits are a cluster, they meet in distributed shared memory; otherwise in global
// memory, where the last CTA to finish combines them.

#include "backend/cuda/attention/attention_task.cuh"
#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/device/arrival.cuh"
#include "backend/cuda/device/cluster.cuh"
#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/activations/staged_input.cuh"

namespace bl::cuda {

// Online softmax of the query rows, eight a tile, over the keys that one warp has read.
// Accumulators have keys or dimensions as rows and queries as columns: of each tile a lane holds
// queries 2 · (lane mod 4) and 2 · (lane mod 4) + 1, for keys (or dimensions) lane/4 and lane/4 + 8
// of 16.
template <int kDim, int kTiles>
struct WarpSums {
  float values[kDim / 16][kTiles][4];
  float max_score[kTiles][2];  // running maximum; P and sums are relative to it
  float exp_sum[kTiles][2];    // running Σ P of this lane's keys; store_warp() adds up the lanes

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int m = 0; m < kDim / 16; ++m) {
#pragma unroll
        for (int e = 0; e < 4; ++e) values[m][t][e] = 0.0f;
      }
      max_score[t][0] = max_score[t][1] = -INFINITY;
      exp_sum[t][0] = exp_sum[t][1] = 0.0f;
    }
  }

  // Turns the scores of 16 keys into P = exp2(score − maximum), as the B fragments for P · V. The
  // maximum is raised, and the accumulators rescaled, only when a score exceeds it by more than
  // `slack`, which is rare: P may be up to 2^slack.
  __device__ __forceinline__ void online_softmax(float slack, float (&score)[kTiles][4],
                                                 std::uint32_t (&probs)[kTiles][2]) {
    bool grown = false;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        grown |= fmaxf(score[t][j], score[t][j + 2]) > max_score[t][j] + slack;
      }
    }
    if (__any_sync(kAllLanes, grown)) raise_max(slack, score);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float base = max_score[t][j] == -INFINITY ? 0.0f : max_score[t][j];
        score[t][j] = power_of_two(score[t][j] - base);
        score[t][j + 2] = power_of_two(score[t][j + 2] - base);
        exp_sum[t][j] += score[t][j] + score[t][j + 2];
      }
      probs[t][0] = transposed(pack_halves(score[t][0], score[t][1]));
      probs[t][1] = transposed(pack_halves(score[t][2], score[t][3]));
    }
  }

 private:
  // Raises the maximum of the queries that need it, each independently of the others.
  __device__ __forceinline__ void raise_max(float slack, const float (&score)[kTiles][4]) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      float rescale[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float most = fmaxf(score[t][j], score[t][j + 2]);
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) {
          most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, distance));
        }
        const bool rises = most > max_score[t][j] + slack;
        rescale[j] = rises ? power_of_two(max_score[t][j] - most) : 1.0f;
        if (rises) max_score[t][j] = most;
        exp_sum[t][j] *= rescale[j];
      }
#pragma unroll
      for (int m = 0; m < kDim / 16; ++m) {
#pragma unroll
        for (int e = 0; e < 4; ++e) values[m][t][e] *= rescale[e & 1];
      }
    }
  }
};

// Some elements of a row's result, complete or partial. Values is float or float4.
template <class Values>
struct RowPartial {
  Values value{};               // Σ P · V
  float max_score = -INFINITY;  // the maximum that P is relative to
  float exp_sum = 0.0f;         // Σ P
};

__device__ __forceinline__ void add_scaled(float& sum, float share, float x) { sum += share * x; }
__device__ __forceinline__ void add_scaled(float4& sum, float share, const float4& x) {
  sum.x += share * x.x;
  sum.y += share * x.y;
  sum.z += share * x.z;
  sum.w += share * x.w;
}

// How to finish a row: the factor for Σ P · V (the softmax denominator, sinks included), and where
// row `row` of the task is stored.
struct ResultRow {
  float factor;
  float* at;
  int token;   // row of the step's result
  int column;  // of the head's first element

  template <class Values>
  __device__ __forceinline__ ResultRow(const AttentionParams& p, const DecodeTask& task, int row,
                                       const RowPartial<Values>& part) {
    const int of_span = token_of_row(task.span, p.group, task.first_row + row);
    const int head = task.kv_head * p.group + task.first_row + row - of_span * p.group;
    at = p.out + (task.span.first_token + of_span) * p.out_stride +
         static_cast<std::int64_t>(head) * p.v_row.dim;
    token = task.span.first_token + of_span;
    column = head * p.v_row.dim;
    if (p.sinks == nullptr) {
      factor = 1.0f / part.exp_sum;
      return;
    }
    const float sink = p.sinks[head] * kLog2E;
    const float max_score = fmaxf(sink, part.max_score);
    const float share = power_of_two(part.max_score - max_score);
    factor = share / (part.exp_sum * share + power_of_two(sink - max_score));
  }

  // Stores kWidth results from element e of the head on; they are already multiplied by `factor`.
  template <int kWidth>
  __device__ __forceinline__ void store(const AttentionParams&, const DecodeTask&, int e,
                                        const float (&values)[kWidth]) const {
    float* to = at + e;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[i] = values[i];
  }
  template <int kWidth>
  __device__ __forceinline__ void store(const StagedParams& p, const DecodeTask& task, int e,
                                        const float (&values)[kWidth]) const {
    const StagedTile tile(p.staged, token);
    const std::uint16_t* offsets =
        task.fragment_offsets + (column - task.kv_head * p.group * p.v_row.dim) + e;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) stage_value(p.staged, tile, token, offsets[i], values[i]);
    // The results are means of binary16 values, so they need no row scale.
    if (column + e == 0) p.staged.row_scales[token] = encoded_row_scale(1.0f);
  }
};

// Finishes and stores elements of a row. With float, the lanes of a warp hold 32 consecutive
// elements, of which at least the first is below v_dim; kRotated: it undoes the rotation of integer
// caches.
template <bool kRotated, class Params>
__device__ __forceinline__ void write_result(const Params& p, const DecodeTask& task, int row,
                                             int e, const RowPartial<float>& part) {
  const ResultRow to(p, task, row, part);
  const int v_dim = p.v_row.dim;
  float value = e < v_dim ? part.value * to.factor : 0.0f;
  if constexpr (kRotated) {
    value = rotate_group(value, min(v_dim - e / kKvScaleGroup * kKvScaleGroup, kKvScaleGroup));
  }
  if (e < v_dim) to.store<1>(p, task, e, {value});
}
template <bool kRotated, class Params>
__device__ __forceinline__ void write_result(const Params& p, const DecodeTask& task, int row,
                                             int e, const RowPartial<float4>& part) {
  static_assert(!kRotated);
  const ResultRow to(p, task, row, part);
  to.store<4>(p, task, e,
              {part.value.x * to.factor, part.value.y * to.factor, part.value.z * to.factor,
               part.value.w * to.factor});
}

// The first row of a KV split's partial results in DecodeLaunch::values and row_stats, for the span
// and kv head of this CTA.
__device__ __forceinline__ std::int64_t first_partial_row(const DecodeLaunch& launch,
                                                          int kv_split) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  return (column * launch.kv_splits + kv_split) * launch.span_rows;
}

// Shared memory for the partial results of the warps: of each warp (maximum, Σ P) and Σ P · V for
// all rows. It reuses the warps' rings.
template <int kDim, int kTiles>
struct CombineBuffers {
  static constexpr int kRows = 8 * kTiles;
  static constexpr int kStride = kDim + 4;
  static constexpr int kWarpBytes = kRows * (kStride + 2) * 4;
  std::byte* smem;
  int warp_bytes;

  __device__ __forceinline__ float* values(int warp, int row) const {
    return reinterpret_cast<float*>(smem + warp * warp_bytes) + 2 * kRows + row * kStride;
  }
  __device__ __forceinline__ float2& stats(int warp, int row) const {
    return reinterpret_cast<float2*>(smem + warp * warp_bytes)[row];
  }
};

// Writes a warp's partial results to shared memory. `kPaired`: rows g and g + 8 of its accumulators
// are dimensions 2g and 2g + 1 (attention_codes.cuh).
template <bool kPaired, int kDim, int kTiles>
__device__ __forceinline__ void store_warp(const DecodeTask& task,
                                           const WarpSums<kDim, kTiles>& sums,
                                           const CombineBuffers<kDim, kTiles>& smem) {
  const int lane = lane_index();
  const int first = kPaired ? lane / 4 * 2 : lane / 4;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float exp_sum = sums.exp_sum[t][j];
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) {
        exp_sum += __shfl_xor_sync(kAllLanes, exp_sum, distance);
      }
      const int row = 8 * t + lane % 4 * 2 + j;
      if (row >= task.rows) continue;
      if (lane < 4) smem.stats(warp_index(), row) = make_float2(sums.max_score[t][j], exp_sum);
      float* at = smem.values(warp_index(), row) + first;
#pragma unroll
      for (int m = 0; m < kDim / 16; ++m) {
        if constexpr (kPaired) {
          *reinterpret_cast<float2*>(at + 16 * m) =
              make_float2(sums.values[m][t][j], sums.values[m][t][j + 2]);
        } else {
          at[16 * m] = sums.values[m][t][j];
          at[16 * m + 8] = sums.values[m][t][j + 2];
        }
      }
    }
  }
}

// Combines the warps' partial results. Calls use(row, e, partial) for all rows and elements; a
// thread gets sizeof(Values) / 4 elements from e on, and neighbouring threads get neighbouring
// elements.
template <class Values, int kDim, int kTiles, class Use>
__device__ __forceinline__ void combine_warps(const AttentionParams& p, const DecodeTask& task,
                                              const CombineBuffers<kDim, kTiles>& smem,
                                              const Use& use) {
  constexpr int kWidth = sizeof(Values) / 4;
  constexpr int kCombinedWarps = 8;  // warps whose results are loaded at once
  const int threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * kWidth; i < task.rows * kDim;
       i += threads * kWidth) {
    const int row = i / kDim;
    const int e = i % kDim;
    // Elements beyond v_dim are skipped; single elements only by whole groups, which a warp rotates
    // together.
    if ((kWidth == 1 ? e / kKvScaleGroup * kKvScaleGroup : e) >= p.v_row.dim) continue;
    RowPartial<Values> part;
#pragma unroll 1
    for (int first = 0; first < threads / 32; first += kCombinedWarps) {
      float2 of_warp[kCombinedWarps];
      Values value[kCombinedWarps];
      float max_score = part.max_score;
#pragma unroll
      for (int w = 0; w < kCombinedWarps; ++w) {
        of_warp[w] = make_float2(-INFINITY, 0.0f);
        value[w] = {};
        if (first + w >= threads / 32) continue;
        of_warp[w] = smem.stats(first + w, row);
        value[w] = *reinterpret_cast<const Values*>(smem.values(first + w, row) + e);
        max_score = fmaxf(max_score, of_warp[w].x);
      }
      const float base = max_score == -INFINITY ? 0.0f : max_score;
      RowPartial<Values> sum;
      sum.max_score = max_score;
      const float rescale = power_of_two(part.max_score - base);
      sum.exp_sum = rescale * part.exp_sum;
      add_scaled(sum.value, rescale, part.value);
#pragma unroll
      for (int w = 0; w < kCombinedWarps; ++w) {
        const float share = power_of_two(of_warp[w].x - base);
        sum.exp_sum += share * of_warp[w].y;
        add_scaled(sum.value, share, value[w]);
      }
      part = sum;
    }
    use(row, e, part);
  }
}

// Stores elements of a partial result as row `at` of the launch's partial results in global memory.
__device__ __forceinline__ void write_partial(const DecodeLaunch& launch, std::int64_t at,
                                              int v_dim, int e, const RowPartial<float4>& part) {
  *reinterpret_cast<float4*>(launch.values + at * v_dim + e) = part.value;
  if (e == 0) launch.row_stats[at] = make_float2(part.max_score, part.exp_sum);
}

// Returns whether this CTA is the last KV split of its (span, kv head, row tile) to finish; it then
// sees the partial results of the others. The counter is zero again afterwards.
__device__ __forceinline__ bool arrives_last(const DecodeLaunch& launch, const DecodeTask& task) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    const int tile = task.first_row / kQueryTile;
    std::uint32_t* counter =
        launch.counters + blockIdx.z * kCountersPerSpan + blockIdx.y * launch.row_tiles + tile;
    last = arrives_last_of(task.kv_splits, counter);
  }
  __syncthreads();
  return last;
}

// Combines the partial results of all KV splits from global memory and writes the result. `smem`:
// kQueryTile · kMaxKvSplits floats, then kDim floats a warp.
template <int kDim, bool kRotated, class Params>
__device__ __forceinline__ void combine_splits(const Params& p, const DecodeLaunch& launch,
                                               const DecodeTask& task, float* smem) {
  const int warp = warp_index();
  const int lane = lane_index();
  constexpr int kCombinedAtOnce = 16;
  const std::int64_t first = first_partial_row(launch, 0) + task.first_row;
  for (int row = warp; row < task.rows; row += static_cast<int>(blockDim.x) / 32) {
    float* shares = smem + row * kMaxKvSplits;
    const int v_dim = p.v_row.dim;  // whole float4s
    const float* values = launch.values + (first + row) * v_dim;
    const std::int64_t stride = static_cast<std::int64_t>(launch.span_rows) * v_dim;
    float4 part[kCombinedAtOnce];  // loaded together, to overlap their latency
    const auto load_partials = [&](int e, int from) {
#pragma unroll
      for (int k = 0; k < kCombinedAtOnce; ++k) {
        if (from + k >= task.kv_splits) break;
        part[k] = __ldcg(reinterpret_cast<const float4*>(values + (from + k) * stride + e));
      }
    };
    // The first loads are issued before those of the row statistics, so that neither waits.
    if (4 * lane < v_dim) load_partials(4 * lane, 0);
    float2 stats[kMaxKvSplits / 32];
    float max_score = -INFINITY;
#pragma unroll
    for (int k = 0; k < kMaxKvSplits / 32; ++k) {
      const int i = lane + 32 * k;
      stats[k] = make_float2(-INFINITY, 0.0f);
      if (i < task.kv_splits) {
        stats[k] = __ldcg(&launch.row_stats[first + i * launch.span_rows + row]);
      }
      max_score = fmaxf(max_score, stats[k].x);
    }
    max_score = warp_max(max_score);
    float total = 0.0f;
#pragma unroll
    for (int k = 0; k < kMaxKvSplits / 32; ++k) {
      const int i = lane + 32 * k;
      const float share = power_of_two(stats[k].x - max_score);
      if (i < task.kv_splits) shares[i] = share;
      total += share * stats[k].y;
    }
    total = warp_sum(total);
    __syncwarp();
    // The sums go through shared memory, so that the code of write_result() exists only once.
    float* row_values = smem + kQueryTile * kMaxKvSplits + warp * kDim;
#pragma unroll 1
    for (int e = 4 * lane; e < v_dim; e += 4 * 32) {
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
      for (int i = 0; i < task.kv_splits; i += kCombinedAtOnce) {
        if (e != 4 * lane || i > 0) load_partials(e, i);
#pragma unroll
        for (int k = 0; k < kCombinedAtOnce; ++k) {
          if (i + k >= task.kv_splits) break;
          const float share = shares[i + k];
          sum.x += share * part[k].x;
          sum.y += share * part[k].y;
          sum.z += share * part[k].z;
          sum.w += share * part[k].w;
        }
      }
      *reinterpret_cast<float4*>(row_values + e) = sum;
    }
    __syncwarp();
#pragma unroll 1
    for (int d = 0; d < v_dim; d += kKvScaleGroup) {
      write_result<kRotated>(p, task, row, d + lane,
                             RowPartial<float>{row_values[d + lane], max_score, total});
    }
  }
}

// ---- Clusters

// The partial results of a CTA, which the other CTAs of its cluster read.
template <int kDim>
struct ClusterPartial {
  float2 row_stats[8];
  float values[8][kDim];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// Combines the partial results of the cluster's CTAs and writes the result. Groups of 32 elements
// are dealt to the CTAs in turn, then to their warps. All threads of the cluster call; the barrier
// at the end keeps a CTA alive while others may still read its shared memory.
template <int kDim, bool kRotated, class Params>
__device__ __forceinline__ void combine_cluster(const Params& p, const DecodeTask& task,
                                                const ClusterPartial<kDim>& own) {
  cluster_arrive();
  const int groups = (p.v_row.dim + kKvScaleGroup - 1) / kKvScaleGroup;
  const std::uint32_t row_stats = shared_address(own.row_stats);
  const std::uint32_t values = shared_address(own.values);
  cluster_wait();
#pragma unroll 1
  for (int i = task.kv_split + task.kv_splits * warp_index(); i < task.rows * groups;
       i += task.kv_splits * static_cast<int>(blockDim.x) / 32) {
    const int row = i / groups;
    const int e = (i - row * groups) * kKvScaleGroup + lane_index();
    float2 stats[kMostClusterCtas];
    float value[kMostClusterCtas];
    RowPartial<float> part;
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) {
      stats[c] = make_float2(-INFINITY, 0.0f);
      value[c] = 0.0f;
      if (c >= task.kv_splits) continue;
      asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                   : "=f"(stats[c].x), "=f"(stats[c].y)
                   : "r"(cluster_address(row_stats + row * 8, c)));
      asm volatile("ld.shared::cluster.f32 %0, [%1];"
                   : "=f"(value[c])
                   : "r"(cluster_address(values + (row * kDim + e) * 4, c)));
    }
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) part.max_score = fmaxf(part.max_score, stats[c].x);
    const float base = part.max_score == -INFINITY ? 0.0f : part.max_score;
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) {
      const float share = power_of_two(stats[c].x - base);
      part.exp_sum += share * stats[c].y;
      part.value += share * value[c];
    }
    write_result<kRotated>(p, task, row, e, part);
  }
  cluster_arrive();
  cluster_wait();
}
#endif

}  // namespace bl::cuda
