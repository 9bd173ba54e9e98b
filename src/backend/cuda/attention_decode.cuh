#pragma once
// A CTA of the decode kernel: four warps, each with its own keys (every fourth run of 16 of the
// piece), its own ring of copies and its own softmax; they are joined at the end.

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
  static constexpr int kStages = kHalf || kDim > 128 ? 2 : 4;
  static constexpr bool kQueryInRegisters = kDim <= 128;
  static constexpr int kTileHalves = kWarpKeys * kTileStride<kDim>;
  static constexpr int kQueryBytes = kQueryTile * kTileStride<kDim> * 2;
  static constexpr int kOutStride = kDim + 8;  // floats, as parts of warps lie in shared memory
  static constexpr int kJoinBytes = kDecodeWarps * kQueryTile * (kOutStride + 2) * 4;

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
    const int g = lane_ / 4;
    const RowRule rules[2] = {row_rule(p_, task_.span, task_.kv_head, task_.first_row + g),
                              row_rule(p_, task_.span, task_.kv_head, task_.first_row + g + 8)};
    std::uint32_t q[Shape::kQueryInRegisters ? kDim / 16 : 1][4];
    if constexpr (Shape::kQueryInRegisters) {
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) load_a<kDim>(q[k], queries_ + 16 * k);
    }
    const int warp = warp_index();
    int stage = 0;
    for (int key = task_.begin + warp * kWarpKeys; key < task_.end;
         key += kWarpKeys * kDecodeWarps) {
      wait_copies<Shape::kStages - 1>();
      __syncwarp();
      if (fresh_ != nullptr) add_fresh(stage, task_.span.past - key);
      float score[2][4] = {};
      score_keys(stage, key, q, score);
      apply_rules(rules, key, score);
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

  // Starts copying the next keys of this warp, and counts as a group in any case.
  __device__ __forceinline__ void prefetch(int stage) {
    if (next_ < task_.end) {
      const auto page = static_cast<std::int64_t>(__ldg(task_.pages + next_ / kPageSlots));
      const int slot = task_.kv_head * kPageSlots + next_ % kPageSlots;
      const std::byte* k = p_.k + page * p_.k_page_bytes + slot * p_.k_row.bytes;
      const std::byte* v = p_.v + page * p_.v_page_bytes + slot * p_.v_row.bytes;
      if constexpr (Shape::kHalf) {
        const int present = (fresh_ != nullptr ? task_.span.past : task_.end) - next_;
        copy_half_rows<kDim, kWarpKeys>(team(), p_.k_row, k, present, keys(stage));
        copy_half_rows<kDim, kWarpKeys>(team(), p_.v_row, v, present, values(stage));
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

// A row's result, or its part: one lane an element of a group of 32.
struct RowPart {
  float value = 0.0f;  // Σ weight · value
  float top = 0.0f;
  float weight = 0.0f;
};

// Lanes of a warp hold elements [d, d + 32) of row `row` of the task, lane by lane.
template <bool kRotated>
__device__ __forceinline__ void write_result(const AttentionParams& p, const DecodeTask& task,
                                             int row, int d, const RowPart& part) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int v_dim = p.v_row.dim;
  const int token = token_of_row(task.span, p.group, task.first_row + row);
  const int head = task.kv_head * p.group + task.first_row + row - token * p.group;
  float value = part.value;
  float weight = part.weight;
  if (p.sinks != nullptr) {
    const float sink = p.sinks[head] * kLog2E;
    const float top = fmaxf(sink, part.top);
    value *= power_of_two(part.top - top);
    weight = weight * power_of_two(part.top - top) + power_of_two(sink - top);
  }
  value = d + lane < v_dim ? value / weight : 0.0f;
  if (kRotated) {
    value = rotate_group(value, v_dim - d < kKvScaleGroup ? v_dim - d : kKvScaleGroup);
  }
  if (d + lane < v_dim) {
    p.out[(task.span.first_token + token) * p.out_stride + static_cast<std::int64_t>(head) * v_dim +
          d + lane] = value;
  }
}

// Where the partial results of the task's span and kv head begin, in rows.
__device__ __forceinline__ std::int64_t first_part_row(const DecodeLaunch& launch, int piece) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  return (column * launch.pieces + piece) * launch.span_rows;
}

// The four warps' sums → the result, or this piece's part of it. `room`: Shape::kJoinBytes.
template <int kDim, int kOutStride, bool kRotated>
__device__ __forceinline__ void join_warps(const AttentionParams& p, const DecodeLaunch& launch,
                                           const DecodeTask& task, const WarpSums<kDim>& sums,
                                           float* room) {
  const int warp = warp_index();
  const int lane = static_cast<int>(threadIdx.x) & 31;
  float2* tops = reinterpret_cast<float2*>(room);  // [warp][row]
  float* values = room + 2 * kDecodeWarps * kQueryTile;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = lane / 4 + 8 * h;
    const float weight = row_sum(sums.weight[h]);
    if (row >= task.rows) continue;
    if (lane % 4 == 0) tops[warp * kQueryTile + row] = make_float2(sums.top[h], weight);
    float* at = values + (warp * kQueryTile + row) * kOutStride + 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      *reinterpret_cast<float2*>(at + 8 * n) =
          make_float2(sums.values[n][2 * h], sums.values[n][2 * h + 1]);
    }
  }
  __syncthreads();
  const int v_dim = p.v_row.dim;
  const int groups = (v_dim + kKvScaleGroup - 1) / kKvScaleGroup;
  const std::int64_t first = first_part_row(launch, task.piece) + task.first_row;
  for (int i = warp; i < task.rows * groups; i += kDecodeWarps) {
    const int row = i / groups;
    const int d = i % groups * kKvScaleGroup;
    RowPart part{0.0f, -INFINITY, 0.0f};
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) part.top = fmaxf(part.top, tops[w * kQueryTile + row].x);
    const float base = part.top == -INFINITY ? 0.0f : part.top;
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) {
      const float2 top = tops[w * kQueryTile + row];
      const float share = power_of_two(top.x - base);
      part.weight += share * top.y;
      part.value += share * values[(w * kQueryTile + row) * kOutStride + d + lane];
    }
    if (task.pieces == 1) {
      write_result<kRotated>(p, task, row, d, part);
    } else {
      if (d + lane < v_dim) launch.values[(first + row) * v_dim + d + lane] = part.value;
      if (d == 0 && lane == 0) launch.tops[first + row] = make_float2(part.top, part.weight);
    }
  }
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
      write_result<kRotated>(p, task, row, d, {row_values[d + lane], top, total});
    }
  }
}

// The new token's key and value of the task's head, in groups of 32 elements that go round the
// warps: first asked for, then written.
template <CacheType kType, int kDim>
class FreshGroups {
 public:
  __device__ __forceinline__ void load(const FreshTokens& fresh, const DecodeTask& task) {
    const std::int64_t token = task.span.first_token;
    const int k_dim = fresh.write.k.shape.dim;
    const int v_dim = fresh.write.v.shape.dim;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int e = first(i) + lane_index();
      if (e < k_dim) {
        key_[i] = unturned_element(fresh.k, fresh.write.k.x[token] + task.kv_head * k_dim, e);
      }
      if (e < v_dim) value_[i] = (fresh.write.v.x[token] + task.kv_head * v_dim)[e];
    }
  }
  // To the cache, and in binary16 to `rows` if there are any.
  __device__ __forceinline__ void store(const FreshTokens& fresh, const DecodeTask& task,
                                        std::int64_t slot, const float2* turns,
                                        FreshRows<kDim>* rows) const {
    const std::int64_t row =
        static_cast<std::int64_t>(task.kv_head) * kPageSlots + slot % kPageSlots;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll 1
      for (int is_value = 0; is_value < 2; ++is_value) {
        const KvTarget& target = is_value != 0 ? fresh.write.v : fresh.write.k;
        const RowShape shape = TypeOfRows<kType>::shape(target.shape);
        const float y = is_value != 0 ? value_[i] : turned(turns, key_[i]);
        if (rows != nullptr && first(i) < kDim) {
          __half* to = is_value != 0 ? rows->value : rows->key;
          to[first(i) + lane_index()] = __ushort_as_half(saturated_half(y));
        }
        if (first(i) >= shape.dim) continue;
        encode_group(shape, first(i), y,
                     target.pages + slot / kPageSlots * target.page_bytes + row * shape.bytes);
      }
    }
  }

 private:
  static constexpr int kGroups = kDim / kKvScaleGroup;
  static constexpr int kCount = (kGroups + kDecodeWarps - 1) / kDecodeWarps;
  __device__ __forceinline__ static int first(int i) {
    return (warp_index() + i * kDecodeWarps) * kKvScaleGroup;
  }
  UnturnedElement key_[kCount];
  float value_[kCount] = {};
};

// Spans, pages and positions are of the whole step, and older keys of earlier steps: they are read
// before the kernel before has ended.
template <CacheType kType, int kDim>
__global__ void __launch_bounds__(kDecodeWarps * 32, kDim <= 128 ? 3 : 2)
    decode_kernel(const __grid_constant__ AttentionParams p,
                  const __grid_constant__ DecodeLaunch launch,
                  const __grid_constant__ FreshTokens fresh) {
  allow_next();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Shape = DecodeRoom<kType, kDim>;
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ float2 turns[kMostTurns];
  auto* queries = reinterpret_cast<__half*>(shared);
  std::byte* ring = shared + Shape::kQueryBytes;
  DecodeTask task;
  if (!find_task(p, launch, task)) {
    dependency_wait();
    return;
  }
  const bool writes = fresh.present && task.end > task.span.past;
  FreshRows<kDim>* rows = nullptr;
  if constexpr (Shape::kHalf) {
    __shared__ FreshRows<kDim> fresh_rows;
    if (writes) rows = &fresh_rows;
  }
  DecodeWarp<kType, kDim> warp(p, task, ring, queries, rows);
  warp.open_old();
  const std::int64_t slot = fresh.present ? fresh.write.slots[task.span.first_token] : 0;
  if (fresh.present) fill_turns(fresh.q, task.span.first_token, turns);
  const auto query = [&](const float* head, int e) {
    return fresh.present ? rotated_element(fresh.q, turns, head, e) : head[e];
  };
  dependency_wait();
  FreshGroups<kType, kDim> groups;
  if (writes) groups.load(fresh, task);
  if (writes && !Shape::kHalf) {  // the new row is read back, while queries are made ready
    groups.store(fresh, task, slot, turns, rows);
    __syncthreads();
    warp.open_rest();
  }
  constexpr bool kRotated = TypeOfRows<kType>::kRotated;
  load_queries<kDim, kQueryTile>(p, task.span, task.kv_head, task.first_row, kRotated, queries,
                                 query);
  if (writes && Shape::kHalf) groups.store(fresh, task, slot, turns, rows);
  __syncthreads();
  warp.open_rest();
  WarpSums<kDim> sums;
  warp.run(sums);
  __syncthreads();
  join_warps<kDim, Shape::kOutStride, kRotated>(p, launch, task, sums,
                                                reinterpret_cast<float*>(ring));
  if (task.pieces == 1 || !arrives_last(launch, task)) return;
  join_pieces<kDim, kRotated>(p, launch, task, reinterpret_cast<float*>(ring));
#endif
}

}  // namespace bl::cuda
