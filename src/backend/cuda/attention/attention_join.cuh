#pragma once
// Sums of the decode kernel: those of a warp, then of the warps of a CTA, then of the CTAs that
// have the pieces of a (span, kv head).

#include "backend/cuda/attention/attention_task.cuh"
#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/device/arrival.cuh"
#include "backend/cuda/device/cluster.cuh"
#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/activations/staged_input.cuh"

namespace bl::cuda {

// Softmax of the query rows, eight a tile, over the keys that one warp has read. Products have keys
// or dimensions as rows and queries as columns: of each tile a lane holds queries 2·(lane mod 4)
// and the next, of keys lane/4 and lane/4 + 8 of sixteen, or of such dimensions.
template <int kDim, int kTiles>
struct WarpSums {
  float values[kDim / 16][kTiles][4];
  float top[kTiles][2];     // what weights are relative to
  float weight[kTiles][2];  // of this lane's keys only, until the end

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int m = 0; m < kDim / 16; ++m) {
#pragma unroll
        for (int e = 0; e < 4; ++e) values[m][t][e] = 0.0f;
      }
      top[t][0] = top[t][1] = -INFINITY;
      weight[t][0] = weight[t][1] = 0.0f;
    }
  }

  // Scores of 16 keys become weights, as the B fragments of the products with the values. A weight
  // may be 2^slack before what weights are relative to follows, which is rare.
  __device__ __forceinline__ void weigh(float slack, float (&score)[kTiles][4],
                                        std::uint32_t (&weights)[kTiles][2]) {
    bool grown = false;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        grown |= fmaxf(score[t][j], score[t][j + 2]) > top[t][j] + slack;
      }
    }
    if (__any_sync(kAllLanes, grown)) raise(slack, score);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float base = top[t][j] == -INFINITY ? 0.0f : top[t][j];
        score[t][j] = power_of_two(score[t][j] - base);
        score[t][j + 2] = power_of_two(score[t][j + 2] - base);
        weight[t][j] += score[t][j] + score[t][j + 2];
      }
      weights[t][0] = transposed(pack_halves(score[t][0], score[t][1]));
      weights[t][1] = transposed(pack_halves(score[t][2], score[t][3]));
    }
  }

 private:
  // Each query by itself, whatever others need.
  __device__ __forceinline__ void raise(float slack, const float (&score)[kTiles][4]) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      float shrink[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float most = fmaxf(score[t][j], score[t][j + 2]);
#pragma unroll
        for (int distance = 4; distance < 32; distance *= 2) {
          most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, distance));
        }
        const bool rises = most > top[t][j] + slack;
        shrink[j] = rises ? power_of_two(top[t][j] - most) : 1.0f;
        if (rises) top[t][j] = most;
        weight[t][j] *= shrink[j];
      }
#pragma unroll
      for (int m = 0; m < kDim / 16; ++m) {
#pragma unroll
        for (int e = 0; e < 4; ++e) values[m][t][e] *= shrink[e & 1];
      }
    }
  }
};

// Some elements of a row's result, or their part in it: Values is float or float4.
template <class Values>
struct RowPart {
  Values value{};         // Σ weight · value
  float top = -INFINITY;  // largest score, which weights are relative to
  float weight = 0.0f;    // Σ weight
};

__device__ __forceinline__ void add_scaled(float& sum, float share, float x) { sum += share * x; }
__device__ __forceinline__ void add_scaled(float4& sum, float share, const float4& x) {
  sum.x += share * x.x;
  sum.y += share * x.y;
  sum.z += share * x.z;
  sum.w += share * x.w;
}

// What Σ weight · value is to be multiplied by, and where row `row` of the task's results is.
struct ResultRow {
  float factor;
  float* at;
  int token;   // of the step
  int column;  // the first one's

  template <class Values>
  __device__ __forceinline__ ResultRow(const AttentionParams& p, const DecodeTask& task, int row,
                                       const RowPart<Values>& part) {
    const int of_span = token_of_row(task.span, p.group, task.first_row + row);
    const int head = task.kv_head * p.group + task.first_row + row - of_span * p.group;
    at = p.out + (task.span.first_token + of_span) * p.out_stride +
         static_cast<std::int64_t>(head) * p.v_row.dim;
    token = task.span.first_token + of_span;
    column = head * p.v_row.dim;
    if (p.sinks == nullptr) {
      factor = 1.0f / part.weight;
      return;
    }
    const float sink = p.sinks[head] * kLog2E;
    const float top = fmaxf(sink, part.top);
    const float share = power_of_two(part.top - top);
    factor = share / (part.weight * share + power_of_two(sink - top));
  }

  // kWidth results from element e on, times `factor`.
  template <int kWidth>
  __device__ __forceinline__ void store(const AttentionParams&, const DecodeTask&, int e,
                                        const float (&values)[kWidth]) const {
    float* to = at + e;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[i] = values[i];
  }
  template <int kWidth>
  __device__ __forceinline__ void store(const LeavingParams& p, const DecodeTask& task, int e,
                                        const float (&values)[kWidth]) const {
    const StagedTile tile(p.left, token);
    const std::uint16_t* places = task.places + (column - task.kv_head * p.group * p.v_row.dim) + e;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) stage_value(p.left, tile, token, places[i], values[i]);
    // Means of what binary16 holds need no scale.
    if (column + e == 0) p.left.row_scales[token] = encoded_row_scale(1.0f);
  }
};

// Lanes of a warp hold elements e of 32 in a row, of which the first is one of v_dim.
template <bool kRotated, class Params>
__device__ __forceinline__ void write_result(const Params& p, const DecodeTask& task, int row,
                                             int e, const RowPart<float>& part) {
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
                                             int e, const RowPart<float4>& part) {
  static_assert(!kRotated);
  const ResultRow to(p, task, row, part);
  to.store<4>(p, task, e,
              {part.value.x * to.factor, part.value.y * to.factor, part.value.z * to.factor,
               part.value.w * to.factor});
}

// Where the partial results of the task's span and kv head begin, in rows.
__device__ __forceinline__ std::int64_t first_part_row(const DecodeLaunch& launch, int piece) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  return (column * launch.pieces + piece) * launch.span_rows;
}

// Where the sums of the warps lie before they are joined, each warp's in its own room.
template <int kDim, int kTiles>
struct JoinRoom {
  static constexpr int kRows = 8 * kTiles;
  static constexpr int kStride = kDim + 4;
  static constexpr int kWarpBytes = kRows * (kStride + 2) * 4;
  std::byte* room;
  int warp_bytes;

  __device__ __forceinline__ float* values(int warp, int row) const {
    return reinterpret_cast<float*>(room + warp * warp_bytes) + 2 * kRows + row * kStride;
  }
  __device__ __forceinline__ float2& top(int warp, int row) const {
    return reinterpret_cast<float2*>(room + warp * warp_bytes)[row];
  }
};

// `kPaired`: rows g and g + 8 of a product are dimensions 2g and 2g + 1.
template <bool kPaired, int kDim, int kTiles>
__device__ __forceinline__ void store_warp(const DecodeTask& task,
                                           const WarpSums<kDim, kTiles>& sums,
                                           const JoinRoom<kDim, kTiles>& room) {
  const int lane = lane_index();
  const int first = kPaired ? lane / 4 * 2 : lane / 4;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float weight = sums.weight[t][j];
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) {
        weight += __shfl_xor_sync(kAllLanes, weight, distance);
      }
      const int row = 8 * t + lane % 4 * 2 + j;
      if (row >= task.rows) continue;
      if (lane < 4) room.top(warp_index(), row) = make_float2(sums.top[t][j], weight);
      float* at = room.values(warp_index(), row) + first;
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

// use(row, e, part) for elements e … of all rows, as they go round the threads: neighbours have
// neighbouring ones.
template <class Values, int kDim, int kTiles, class Use>
__device__ __forceinline__ void join_warps(const AttentionParams& p, const DecodeTask& task,
                                           const JoinRoom<kDim, kTiles>& room, const Use& use) {
  constexpr int kWidth = sizeof(Values) / 4;
  constexpr int kJoinedWarps = 8;  // at a time
  const int threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * kWidth; i < task.rows * kDim;
       i += threads * kWidth) {
    const int row = i / kDim;
    const int e = i % kDim;
    // Single elements by whole groups, which are rotated together.
    if ((kWidth == 1 ? e / kKvScaleGroup * kKvScaleGroup : e) >= p.v_row.dim) continue;
    RowPart<Values> part;
#pragma unroll 1
    for (int first = 0; first < threads / 32; first += kJoinedWarps) {
      float2 of_warp[kJoinedWarps];
      Values value[kJoinedWarps];
      float top = part.top;
#pragma unroll
      for (int w = 0; w < kJoinedWarps; ++w) {
        of_warp[w] = make_float2(-INFINITY, 0.0f);
        value[w] = {};
        if (first + w >= threads / 32) continue;
        of_warp[w] = room.top(first + w, row);
        value[w] = *reinterpret_cast<const Values*>(room.values(first + w, row) + e);
        top = fmaxf(top, of_warp[w].x);
      }
      const float base = top == -INFINITY ? 0.0f : top;
      RowPart<Values> sum;
      sum.top = top;
      const float shrink = power_of_two(part.top - base);
      sum.weight = shrink * part.weight;
      add_scaled(sum.value, shrink, part.value);
#pragma unroll
      for (int w = 0; w < kJoinedWarps; ++w) {
        const float share = power_of_two(of_warp[w].x - base);
        sum.weight += share * of_warp[w].y;
        add_scaled(sum.value, share, value[w]);
      }
      part = sum;
    }
    use(row, e, part);
  }
}

// A part of a row of v_dim elements, the launch's row `at`, to memory.
__device__ __forceinline__ void write_part(const DecodeLaunch& launch, std::int64_t at, int v_dim,
                                           int e, const RowPart<float4>& part) {
  *reinterpret_cast<float4*>(launch.values + at * v_dim + e) = part.value;
  if (e == 0) launch.tops[at] = make_float2(part.top, part.weight);
}

// Whether this CTA is the last of its (span, kv head, tile) to arrive; it sees the others' parts.
// The counter is back at zero afterwards.
__device__ __forceinline__ bool arrives_last(const DecodeLaunch& launch, const DecodeTask& task) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    const int tile = task.first_row / kQueryTile;
    std::uint32_t* counter =
        launch.counters + blockIdx.z * kCountersPerSpan + blockIdx.y * launch.row_tiles + tile;
    last = arrives_last_of(task.pieces, counter);
  }
  __syncthreads();
  return last;
}

// All pieces' parts → results. `room`: kQueryTile · kMaxPieces floats and kDim a warp.
template <int kDim, bool kRotated, class Params>
__device__ __forceinline__ void join_pieces(const Params& p, const DecodeLaunch& launch,
                                            const DecodeTask& task, float* room) {
  const int warp = warp_index();
  const int lane = lane_index();
  constexpr int kJoinedAtOnce = 16;
  const std::int64_t first = first_part_row(launch, 0) + task.first_row;
  for (int row = warp; row < task.rows; row += static_cast<int>(blockDim.x) / 32) {
    float* shares = room + row * kMaxPieces;
    const int v_dim = p.v_row.dim;  // whole float4s
    const float* values = launch.values + (first + row) * v_dim;
    const std::int64_t stride = static_cast<std::int64_t>(launch.span_rows) * v_dim;
    float4 part[kJoinedAtOnce];  // many loads under way
    const auto ask_for_parts = [&](int e, int from) {
#pragma unroll
      for (int k = 0; k < kJoinedAtOnce; ++k) {
        if (from + k >= task.pieces) break;
        part[k] = __ldcg(reinterpret_cast<const float4*>(values + (from + k) * stride + e));
      }
    };
    // The first ones beside the tops, so that neither waits for the other.
    if (4 * lane < v_dim) ask_for_parts(4 * lane, 0);
    float2 parts[kMaxPieces / 32];
    float top = -INFINITY;
#pragma unroll
    for (int k = 0; k < kMaxPieces / 32; ++k) {
      const int i = lane + 32 * k;
      parts[k] = make_float2(-INFINITY, 0.0f);
      if (i < task.pieces) parts[k] = __ldcg(&launch.tops[first + i * launch.span_rows + row]);
      top = fmaxf(top, parts[k].x);
    }
    top = warp_max(top);
    float total = 0.0f;
#pragma unroll
    for (int k = 0; k < kMaxPieces / 32; ++k) {
      const int i = lane + 32 * k;
      const float share = power_of_two(parts[k].x - top);
      if (i < task.pieces) shares[i] = share;
      total += share * parts[k].y;
    }
    total = warp_sum(total);
    __syncwarp();
    // Through shared memory, so that what follows exists once.
    float* row_values = room + kQueryTile * kMaxPieces + warp * kDim;
#pragma unroll 1
    for (int e = 4 * lane; e < v_dim; e += 4 * 32) {
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
      for (int i = 0; i < task.pieces; i += kJoinedAtOnce) {
        if (e != 4 * lane || i > 0) ask_for_parts(e, i);
#pragma unroll
        for (int k = 0; k < kJoinedAtOnce; ++k) {
          if (i + k >= task.pieces) break;
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
                             RowPart<float>{row_values[d + lane], top, total});
    }
  }
}

// ---- Clusters

// A CTA's part, where the others of its cluster read it.
template <int kDim>
struct ClusterPart {
  float2 tops[8];
  float values[8][kDim];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// The cluster's parts → results: groups of 32 elements go round the CTAs, then their warps. All
// threads of the cluster call, and none leaves while another may read of it.
template <int kDim, bool kRotated, class Params>
__device__ __forceinline__ void join_cluster(const Params& p, const DecodeTask& task,
                                             const ClusterPart<kDim>& own) {
  cluster_arrive();
  const int groups = (p.v_row.dim + kKvScaleGroup - 1) / kKvScaleGroup;
  const std::uint32_t tops = shared_address(own.tops);
  const std::uint32_t values = shared_address(own.values);
  cluster_wait();
#pragma unroll 1
  for (int i = task.piece + task.pieces * warp_index(); i < task.rows * groups;
       i += task.pieces * static_cast<int>(blockDim.x) / 32) {
    const int row = i / groups;
    const int e = (i - row * groups) * kKvScaleGroup + lane_index();
    float2 top[kMostClusterCtas];
    float value[kMostClusterCtas];
    RowPart<float> part;
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) {
      top[c] = make_float2(-INFINITY, 0.0f);
      value[c] = 0.0f;
      if (c >= task.pieces) continue;
      asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
                   : "=f"(top[c].x), "=f"(top[c].y)
                   : "r"(of_cta(tops + row * 8, c)));
      asm volatile("ld.shared::cluster.f32 %0, [%1];"
                   : "=f"(value[c])
                   : "r"(of_cta(values + (row * kDim + e) * 4, c)));
    }
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) part.top = fmaxf(part.top, top[c].x);
    const float base = part.top == -INFINITY ? 0.0f : part.top;
#pragma unroll
    for (int c = 0; c < kMostClusterCtas; ++c) {
      const float share = power_of_two(top[c].x - base);
      part.weight += share * top[c].y;
      part.value += share * value[c];
    }
    write_result<kRotated>(p, task, row, e, part);
  }
  cluster_arrive();
  cluster_wait();
}
#endif

}  // namespace bl::cuda
