#pragma once
// Sums of the decode kernel: those of a warp, then of the warps of a CTA, then of the CTAs that
// have the pieces of a (span, kv head).

#include "backend/cuda/attention_task.cuh"
#include "backend/cuda/attention_tile.cuh"
#include "backend/cuda/warp_reduce.cuh"

namespace bl::cuda {

// Softmax of the 16 query rows over the keys that one warp has read: a lane holds rows lane/4 and
// lane/4 + 8, columns 2·(lane mod 4) and the next of each run of eight.
template <int kDim>
struct WarpSums {
  float values[kDim / 8][4];
  float top[2];
  float weight[2];  // of this lane's columns only, until the end

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) values[n][e] = 0.0f;
    }
    top[0] = top[1] = -INFINITY;
    weight[0] = weight[1] = 0.0f;
  }

  // Scores of 16 keys become weights, as the A fragment of the product with the values.
  __device__ __forceinline__ void weigh(float (&score)[2][4], std::uint32_t (&weights)[4]) {
    float base[2];
    bool grown = false;
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float most = row_max(fmaxf(fmaxf(score[0][2 * h], score[0][2 * h + 1]),
                                       fmaxf(score[1][2 * h], score[1][2 * h + 1])));
      const float next = fmaxf(top[h], most);
      base[h] = next == -INFINITY ? 0.0f : next;
      grown |= next > top[h];
      shrink[h] = power_of_two(top[h] - base[h]);
      top[h] = next;
    }
    if (__any_sync(kAllLanes, grown)) {
      weight[0] *= shrink[0];
      weight[1] *= shrink[1];
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) values[n][e] *= shrink[e / 2];
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        score[j][e] = power_of_two(score[j][e] - base[e / 2]);
        weight[e / 2] += score[j][e];
      }
      weights[2 * j] = pack_halves(score[j][0], score[j][1]);
      weights[2 * j + 1] = pack_halves(score[j][2], score[j][3]);
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

  template <class Values>
  __device__ __forceinline__ ResultRow(const AttentionParams& p, const DecodeTask& task, int row,
                                       const RowPart<Values>& part) {
    const int token = token_of_row(task.span, p.group, task.first_row + row);
    const int head = task.kv_head * p.group + task.first_row + row - token * p.group;
    at = p.out + (task.span.first_token + token) * p.out_stride +
         static_cast<std::int64_t>(head) * p.v_row.dim;
    if (p.sinks == nullptr) {
      factor = 1.0f / part.weight;
      return;
    }
    const float sink = p.sinks[head] * kLog2E;
    const float top = fmaxf(sink, part.top);
    const float share = power_of_two(part.top - top);
    factor = share / (part.weight * share + power_of_two(sink - top));
  }
};

// Lanes of a warp hold elements e of 32 in a row, of which the first is one of v_dim.
template <bool kRotated>
__device__ __forceinline__ void write_result(const AttentionParams& p, const DecodeTask& task,
                                             int row, int e, const RowPart<float>& part) {
  const ResultRow to(p, task, row, part);
  const int v_dim = p.v_row.dim;
  float value = e < v_dim ? part.value * to.factor : 0.0f;
  if constexpr (kRotated) {
    value = rotate_group(value, min(v_dim - e / kKvScaleGroup * kKvScaleGroup, kKvScaleGroup));
  }
  if (e < v_dim) to.at[e] = value;
}
template <bool kRotated>
__device__ __forceinline__ void write_result(const AttentionParams& p, const DecodeTask& task,
                                             int row, int e, const RowPart<float4>& part) {
  static_assert(!kRotated);
  const ResultRow to(p, task, row, part);
  float* at = to.at + e;
  at[0] = part.value.x * to.factor;
  at[1] = part.value.y * to.factor;
  at[2] = part.value.z * to.factor;
  at[3] = part.value.w * to.factor;
}

// Where the partial results of the task's span and kv head begin, in rows.
__device__ __forceinline__ std::int64_t first_part_row(const DecodeLaunch& launch, int piece) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  return (column * launch.pieces + piece) * launch.span_rows;
}

// Where the warps' sums lie before they are joined.
template <int kDim>
struct JoinRoom {
  static constexpr int kStride = kDim + 8;
  static constexpr int kBytes = kDecodeWarps * kQueryTile * (kStride + 2) * 4;
  float* room;
  __device__ __forceinline__ float2& top(int warp, int row) const {
    return reinterpret_cast<float2*>(room)[warp * kQueryTile + row];
  }
  __device__ __forceinline__ float* values(int warp, int row) const {
    return room + 2 * kDecodeWarps * kQueryTile + (warp * kQueryTile + row) * kStride;
  }
};

template <int kDim>
__device__ __forceinline__ void store_warp(const DecodeTask& task, const WarpSums<kDim>& sums,
                                           const JoinRoom<kDim>& room) {
  const int lane = lane_index();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = lane / 4 + 8 * h;
    const float weight = row_sum(sums.weight[h]);
    if (row >= task.rows) continue;
    if (lane % 4 == 0) room.top(warp_index(), row) = make_float2(sums.top[h], weight);
    float* at = room.values(warp_index(), row);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<float2*>(at + 8 * n + 2 * (lane % 4)) =
          make_float2(sums.values[n][2 * h], sums.values[n][2 * h + 1]);
    }
  }
}

// use(row, e, part) for elements e … of all rows, as they go round the threads: neighbours have
// neighbouring ones.
template <class Values, int kDim, class Use>
__device__ __forceinline__ void join_warps(const AttentionParams& p, const DecodeTask& task,
                                           const JoinRoom<kDim>& room, const Use& use) {
  constexpr int kWidth = sizeof(Values) / 4;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * kWidth; i < task.rows * kDim;
       i += kDecodeWarps * 32 * kWidth) {
    const int row = i / kDim;
    const int e = i % kDim;
    // Single elements by whole groups, which are rotated together.
    if ((kWidth == 1 ? e / kKvScaleGroup * kKvScaleGroup : e) >= p.v_row.dim) continue;
    RowPart<Values> part;
    float2 of_warp[kDecodeWarps];
    Values value[kDecodeWarps];
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) {
      of_warp[w] = room.top(w, row);
      value[w] = *reinterpret_cast<const Values*>(room.values(w, row) + e);
      part.top = fmaxf(part.top, of_warp[w].x);
    }
    const float base = part.top == -INFINITY ? 0.0f : part.top;
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) {
      const float share = power_of_two(of_warp[w].x - base);
      part.weight += share * of_warp[w].y;
      add_scaled(part.value, share, value[w]);
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
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const int tile = task.first_row / kQueryTile;
    std::uint32_t* counter =
        launch.counters + blockIdx.z * kCountersPerSpan + blockIdx.y * launch.row_tiles + tile;
    const auto turn = static_cast<std::uint32_t>(task.pieces - 1);
    last = atomicInc(counter, turn) == turn;
  }
  __syncthreads();
  __threadfence();
  return last;
}

// All pieces' parts → results. `room`: kQueryTile · kMaxPieces floats and kDim a warp.
template <int kDim, bool kRotated>
__device__ __forceinline__ void join_pieces(const AttentionParams& p, const DecodeLaunch& launch,
                                            const DecodeTask& task, float* room) {
  const int warp = warp_index();
  const int lane = lane_index();
  constexpr int kJoinedAtOnce = 16;
  const std::int64_t first = first_part_row(launch, 0) + task.first_row;
  for (int row = warp; row < task.rows; row += kDecodeWarps) {
    float* shares = room + row * kMaxPieces;
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
    const int v_dim = p.v_row.dim;  // whole float4s
    const std::int64_t stride = static_cast<std::int64_t>(launch.span_rows) * v_dim;
    // Through shared memory, so that what follows exists once.
    float* row_values = room + kQueryTile * kMaxPieces + warp * kDim;
#pragma unroll 1
    for (int e = 4 * lane; e < v_dim; e += 4 * 32) {
      const float* at = launch.values + (first + row) * v_dim + e;
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
      for (int i = 0; i < task.pieces; i += kJoinedAtOnce) {
        float4 part[kJoinedAtOnce];  // many loads under way
#pragma unroll
        for (int k = 0; k < kJoinedAtOnce; ++k) {
          if (i + k >= task.pieces) break;
          part[k] = __ldcg(reinterpret_cast<const float4*>(at + (i + k) * stride));
        }
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

}  // namespace bl::cuda
