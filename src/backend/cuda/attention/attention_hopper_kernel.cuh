#pragma once
// Attention for compute capability 9.0 (wgmma and TMA), after FlashAttention-3 (arXiv:2407.08608).
// This file has the prefill kernel, whose CTAs read all keys of their query rows;
// attention_hopper_split.cuh has the kernel that splits the keys over a cluster. Both take binary16
// caches with heads of 64 or 128.
//
// Tiles: 128 query rows (tokens × query heads of a kv head) × 128 keys a stage. Two stages of keys
// and two of values; with heads of 128 a stage is 32,768 bytes and the CTA takes 166,912 bytes in
// all, with heads of 64 16,384 and 84,992 bytes.
//
// Warp roles: warpgroup 0 is the producer (one thread issues TMA copies, setmaxnreg 24); warpgroups
// 1 and 2 are consumers (setmaxnreg 240) with 64 query rows each, held in registers as operand A.
// The P · V of one key tile runs while the warpgroup computes the exponentials of the next.
// Full/empty barriers for keys and for values separately.
//
// Bound by the tensor cores. bench/ladder/attention_prefill.md has its measured share, and what
// limits it.

#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/attention/rope.cuh"
#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/wgmma.cuh"

namespace bl::cuda {

inline constexpr int kHopperKeys = 128;

// The tile shapes and shared memory layout of a kernel. `kWarpgroups`: consumers, of 64 query rows
// each. `kStages`: stages of the pipeline, each for a key tile and a value tile.
template <int kDim_, int kWarpgroups, int kStages_>
struct HopperConfig {
  static constexpr int kDim = kDim_;
  static constexpr int kStages = kStages_;
  static constexpr int kRows = 64 * kWarpgroups;
  static constexpr int kConsumerThreads = 128 * kWarpgroups;
  static constexpr int kThreads = 128 + kConsumerThreads;
  static constexpr int kBoxBytes = kHopperKeys * 128;  // one TMA box: 64 elements of each row
  static constexpr int kBoxes = kDim / 64;
  static constexpr int kTileBytes = kBoxes * kBoxBytes;
  // Shared memory: stages of keys, stages of values (tiles aligned to 1024 bytes), then 16 rows for
  // each consumer warp, which hold its queries first and its results at the end. The 16 bytes of
  // padding of these rows spread them over the banks.
  static constexpr int kRowBytes = kDim * 2 + 16;
  static constexpr int kWarpRowsBytes = 16 * kRowBytes;
  static constexpr int kRowsAt = 2 * kStages * kTileBytes;
  static constexpr int kBytes = kRowsAt + kConsumerThreads / 32 * kWarpRowsBytes + 1024;
};

template <int kDim>
using HopperPrefillConfig = HopperConfig<kDim, 2, 2>;

// A query row of a span: a token, and a head among the query heads of the kv head.
struct QueryRow {
  int row;
  int group;
  int token;
  int head;
  __device__ __forceinline__ QueryRow(int of_span, int heads)
      : row(of_span), group(heads), token(of_span / heads), head(of_span % heads) {}
  // Moves on by `rows` rows, unless that would be behind row `last`. It has no branches, because
  // the compiler does not move loads across them.
  __device__ __forceinline__ void advance(int rows, int last) {
    const bool moves = row + rows <= last;
    row += moves ? rows : 0;
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const bool wraps = head + 1 == group;
      token += moves && wraps ? 1 : 0;
      head = !moves ? head : wraps ? 0 : head + 1;
    }
  }
};

// Barriers of the stages. Full: TMA has written the tile. Empty: all consumer warps have read it.
template <int kStages>
struct HopperBarriers {
  std::uint64_t keys_full[kStages];
  std::uint64_t keys_empty[kStages];
  std::uint64_t values_full[kStages];
  std::uint64_t values_empty[kStages];
};

// The query rows and keys of a CTA.
struct HopperTask {
  SpanEntry span;
  const std::int32_t* pages = nullptr;
  int kv_head = 0;
  int first_row = 0;
  int begin = 0;  // keys [begin, end); begin is a multiple of the tile
  int end = 0;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Finds query tile `tile` of span blockIdx.z, of kRows rows, and all keys that its rows see.
// Returns false where the span has no such rows.
template <int kRows>
__device__ __forceinline__ bool find_task(const AttentionParams& p, int kv_head, int tile,
                                          HopperTask& task) {
  const auto span = static_cast<int>(blockIdx.z);
  const int4 entry = __ldg(reinterpret_cast<const int4*>(p.spans) + span);
  task.span = {entry.x, entry.y, entry.z, 0};
  task.pages = p.pages + static_cast<std::int64_t>(span) * p.page_stride;
  task.kv_head = kv_head;
  task.first_row = tile * kRows;
  const int rows = task.span.tokens * p.group;
  if (task.first_row >= rows) return false;
  const int first = task.span.past + task.first_row / p.group;
  const int last = task.span.past + min(task.first_row + kRows - 1, rows - 1) / p.group;
  task.begin = first_key_of(first, p.window) / kHopperKeys * kHopperKeys;
  task.end = last + 1;
  return true;
}

// The stages, barriers and query rows in the shared memory of a CTA.
template <class Config>
struct HopperTiles {
  std::byte* shared = nullptr;
  HopperBarriers<Config::kStages>* barriers = nullptr;

  // Initializes the barriers; `raw` is the CTA's dynamic shared memory. All threads call.
  __device__ __forceinline__ HopperTiles(std::byte* raw, HopperBarriers<Config::kStages>& of_cta)
      : shared(reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(raw) + 1023) / 1024 *
                                            1024)),
        barriers(&of_cta) {
    if (threadIdx.x == 0) {
      constexpr int kWarps = Config::kConsumerThreads / 32;
      for (int stage = 0; stage < Config::kStages; ++stage) {
        barrier_init(&barriers->keys_full[stage], 1);
        barrier_init(&barriers->values_full[stage], 1);
        barrier_init(&barriers->keys_empty[stage], kWarps);
        barrier_init(&barriers->values_empty[stage], kWarps);
      }
      barrier_init_fence();
    }
    __syncthreads();
  }
  __device__ __forceinline__ std::byte* keys(int stage) const {
    return shared + stage * Config::kTileBytes;
  }
  __device__ __forceinline__ std::byte* values(int stage) const {
    return keys(Config::kStages + stage);
  }
  // The rows of this consumer warp.
  __device__ __forceinline__ std::byte* query_rows() const {
    return shared + Config::kRowsAt + (warp_index() - 4) * Config::kWarpRowsBytes;
  }
};

// The producer, one thread: issues the copies of all tiles of the task. Tiles without new keys were
// written by earlier steps, so their copies need not come after pdl_wait().
template <class Config>
__device__ __forceinline__ void produce_tiles(const AttentionParams& p, const HopperTask& task,
                                              const HopperTiles<Config>& tiles,
                                              const CUtensorMap* k, const CUtensorMap* v) {
  auto& barriers = *tiles.barriers;
  bool waited = false;
  int i = 0;
  for (int key = task.begin; key < task.end; key += kHopperKeys, ++i) {
    if (!waited && key + kHopperKeys > task.span.past) {
      pdl_wait();
      waited = true;
    }
    const int stage = i % Config::kStages;
    const auto before = static_cast<std::uint32_t>(i / Config::kStages & 1) ^ 1u;
    const int page = __ldg(task.pages + key / kPageSlots);
    const int row = (page * p.kv_heads + task.kv_head) * kPageSlots + key % kPageSlots;
    const auto fetch = [&](const CUtensorMap* map, std::byte* to, std::uint64_t* full) {
      barrier_expect(full, Config::kTileBytes);
#pragma unroll
      for (int box = 0; box < Config::kBoxes; ++box) {
        tensor_copy(to + box * Config::kBoxBytes, map, 64 * box, row, full);
      }
    };
    barrier_wait(&barriers.keys_empty[stage], before);
    fetch(k, tiles.keys(stage), &barriers.keys_full[stage]);
    barrier_wait(&barriers.values_empty[stage], before);
    fetch(v, tiles.values(stage), &barriers.values_full[stage]);
  }
}

// A consumer warpgroup with its 64 query rows.
template <class Config>
class HopperRows {
 public:
  static constexpr int kDim = Config::kDim;

  __device__ __forceinline__ HopperRows(const AttentionParams& params, const HopperTask& task,
                                        const HopperTiles<Config>& tiles, const float2* rope_table)
      : p_(params),
        task_(task),
        tiles_(tiles),
        rope_table_(rope_table),
        lane_(lane_index()),
        first_row_(task.first_row + (warp_index() - 4) * 16 + lane_ / 4) {
    const int first = task.first_row + (warp_index() / 4 - 1) * 64;
    const int last = min(first + 63, task.span.tokens * p_.group - 1);
    first_masked_ = task.span.past + first / p_.group;
    last_windowed_ = p_.window > 0 ? task.span.past + last / p_.group - p_.window : -1;
#pragma unroll
    for (int h = 0; h < 2; ++h) rows_[h] = row_rule(p_, task.span, task.kv_head, row_of(h));
  }

  // Attends to all keys of the task, of which there must be at least one. Scores of tile i are
  // computed while P · V of tile i − 1 runs.
  __device__ __forceinline__ void attend() {
    load_queries();
#pragma unroll
    for (float& x : out_) x = 0.0f;
    int i = 0;
    int key = task_.begin;
    issue_scores(i);
    wgmma_wait_group<0>();
    finish_scores(i, key);
    pack_probs();
    for (key += kHopperKeys, ++i; key < task_.end; key += kHopperKeys, ++i) {
      issue_scores(i);
      issue_values(i - 1);
      wgmma_wait_group<1>();
      finish_scores(i, key);
      wgmma_wait_group<0>();
      finish_values(i - 1);
      pack_probs();
    }
    barrier_wait(&tiles_.barriers->values_full[(i - 1) % Config::kStages], phase_of(i - 1));
    clear_missing(i - 1, key - kHopperKeys);
    issue_values(i - 1);
    wgmma_wait_group<0>();
    fence_registers(out_);
  }

  // Calls visit(row of the CTA, maximum, Σ P, values) for this lane's two rows, where values(n)
  // gives elements 8n + 2 · (lane mod 4) and the one after it of Σ P · V. The four lanes of a row
  // call together.
  template <class Visit>
  __device__ __forceinline__ void each_sum(const Visit& visit) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      visit(row_of(h) - task_.first_row, max_score_[h], row_sum(exp_sum_[h]), [&](int n) {
        return float2{out_[4 * n + 2 * h], out_[4 * n + 2 * h + 1]};
      });
    }
  }

  __device__ __forceinline__ void write_results() {
    const int rows = task_.span.tokens * p_.group;
    std::byte* own = tiles_.query_rows() + lane_ / 4 * Config::kRowBytes + (lane_ & 3) * 4;
    each_sum([&](int row_of_cta, float max_score, float exp_sum, const auto& values) {
      const int row = task_.first_row + row_of_cta;
      const int head = task_.kv_head * p_.group + row % p_.group;
      // The sum becomes infinite where the sink outweighs all keys; the result is then 0, as it
      // should.
      if (p_.sinks != nullptr) exp_sum += power_of_two(p_.sinks[head] * kLog2E - max_score);
      const float inverse = 1.0f / exp_sum;
      if (p_.staged_out != nullptr) {
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          const float2 sum = values(n);
          *reinterpret_cast<std::uint32_t*>(own + 16 * n) =
              pack_halves(sum.x * inverse, sum.y * inverse);
        }
        own += 8 * Config::kRowBytes;
        return;
      }
      if (row >= rows) return;
      float* to = p_.out + (task_.span.first_token + row / p_.group) * p_.out_stride +
                  static_cast<std::int64_t>(head) * kDim + 2 * (lane_ & 3);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const float2 sum = values(n);
        *reinterpret_cast<float2*>(to + 8 * n) = {sum.x * inverse, sum.y * inverse};
      }
    });
    if (p_.staged_out != nullptr) store_halves();
  }

 private:
  static __device__ __forceinline__ std::uint32_t phase_of(int i) {
    return static_cast<std::uint32_t>(i / Config::kStages & 1);
  }

  // The warp's first query row in the span.
  __device__ __forceinline__ int warp_row() const { return first_row_ - lane_ / 4; }

  // The index of the first element of a row's head, in token rows of `stride` elements.
  __device__ __forceinline__ std::int64_t head_at(const QueryRow& row, std::int64_t stride) const {
    return (task_.span.first_token + row.token) * stride +
           static_cast<std::int64_t>(task_.kv_head * p_.group + row.head) * kDim;
  }

  // Stores the warp's binary16 results from shared memory, 16 bytes a lane.
  __device__ __forceinline__ void store_halves() const {
    constexpr int kLanes = kDim / 8;  // lanes of a row
    constexpr int kAtOnce = 32 / kLanes;
    const int last = task_.span.tokens * p_.group - 1;
    const int first = warp_row() + lane_ / kLanes;
    const int e = lane_ % kLanes * 8;
    const std::byte* from = tiles_.query_rows() + lane_ / kLanes * Config::kRowBytes + e * 2;
    QueryRow at(min(first, last), p_.group);
    __syncwarp();
#pragma unroll
    for (int row = 0; row < 16; row += kAtOnce, at.advance(kAtOnce, last)) {
      if (first + row > last) break;
      __half* to = p_.staged_out + head_at(at, p_.out_stride) + e;
      *reinterpret_cast<uint4*>(to) =
          *reinterpret_cast<const uint4*>(from + row * Config::kRowBytes);
    }
  }

  // This lane's row in the lower (h = 0) or upper (h = 1) eight of its warp's 16.
  __device__ __forceinline__ int row_of(int h) const { return first_row_ + 8 * h; }

  // Loads the queries, applies rope and the score scale, and converts them to A fragments by way of
  // shared memory. A lane loads two neighbouring elements of each half of a head, so it has whole
  // rope pairs and a load instruction touches few rows; in fragment order it would touch eight.
  __device__ __forceinline__ void load_queries() {
    constexpr int kLanes = kDim / 4;  // lanes of a row
    constexpr int kAtOnce = 32 / kLanes;
    const int last = task_.span.tokens * p_.group - 1;
    const int e = lane_ % kLanes * 2;
    std::byte* to = tiles_.query_rows() + lane_ / kLanes * Config::kRowBytes + e * 2;
    const float factor = p_.softcap > 0.0f ? p_.scale / p_.softcap : p_.scale * kLog2E;
    const auto packed = [factor](float a, float b) {
      return pack_halves(bounded_half(a * factor), bounded_half(b * factor));
    };
    QueryRow at(min(warp_row() + lane_ / kLanes, last), p_.group);
    constexpr int kLoads = 16 / kAtOnce;  // all in flight together
    float2 first[kLoads];
    float2 second[kLoads];
    float4 turn[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i, at.advance(kAtOnce, last)) {
      const float* from = p_.q + head_at(at, p_.q_stride) + e;
      first[i] = *reinterpret_cast<const float2*>(from);
      second[i] = *reinterpret_cast<const float2*>(from + kDim / 2);
      if (rope_table_ == nullptr) continue;
      const std::int64_t token = task_.span.first_token + at.token;
      turn[i] = *reinterpret_cast<const float4*>(rope_table_ + token * (kDim / 2) + e);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      float2 x = first[i];
      float2 y = second[i];
      if (rope_table_ != nullptr) {
        const float2 by[] = {{turn[i].x, turn[i].y}, {turn[i].z, turn[i].w}};
        x = {rope_first(by[0], first[i].x, second[i].x),
             rope_first(by[1], first[i].y, second[i].y)};
        y = {rope_second(by[0], first[i].x, second[i].x),
             rope_second(by[1], first[i].y, second[i].y)};
      }
      std::byte* place = to + i * kAtOnce * Config::kRowBytes;
      *reinterpret_cast<std::uint32_t*>(place) = packed(x.x, x.y);
      *reinterpret_cast<std::uint32_t*>(place + kDim) = packed(y.x, y.y);
    }
    __syncwarp();
    const std::byte* own = tiles_.query_rows() + lane_ % 16 * Config::kRowBytes + lane_ / 16 * 16;
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      load_matrices(queries_[k], reinterpret_cast<const __half*>(own + 32 * k));
    }
  }
  static __device__ __forceinline__ float bounded_half(float x) {
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
  }

  // ---- Tensor-core steps

  // Waits for key tile i and issues Q · Kᵀ.
  __device__ __forceinline__ void issue_scores(int i) {
    const int stage = i % Config::kStages;
    barrier_wait(&tiles_.barriers->keys_full[stage], phase_of(i));
    const std::uint32_t keys = shared_address(tiles_.keys(stage));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      const std::uint64_t b = row_operand(keys + k / 4 * Config::kBoxBytes + k % 4 * 32);
      if (k == 0) {
        multiply_rows_first(scores_, queries_[k], b);
      } else {
        multiply_rows(scores_, queries_[k], b);
      }
    }
    wgmma_commit_group();
  }

  // Waits for value tile i and issues P · V.
  __device__ __forceinline__ void issue_values(int i) {
    const int stage = i % Config::kStages;
    barrier_wait(&tiles_.barriers->values_full[stage], phase_of(i));
    const std::uint32_t values = shared_address(tiles_.values(stage));
    fence_registers(out_);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kHopperKeys / 16; ++k) {
      multiply_columns(out_, probs_[k], column_operand(values + k * 2048, Config::kBoxBytes));
    }
    wgmma_commit_group();
  }

  // Arrives at an empty barrier: this warp has read the tile.
  __device__ __forceinline__ void release(std::uint64_t* empty) const {
    __syncwarp();
    if (lane_ == 0) barrier_arrive(empty);
  }

  // P · V of tile i is complete: releases its stage and rescales the result to the new maximum.
  __device__ __forceinline__ void finish_values(int i) {
    fence_registers(out_);
    release(&tiles_.barriers->values_empty[i % Config::kStages]);
#pragma unroll
    for (int e = 0; e < kDim / 2; ++e) out_[e] *= rescale_[e / 2 % 2];
  }

  // The scores of tile i are complete: releases its stage, masks them, updates the online softmax
  // and turns them into P, in place.
  __device__ __forceinline__ void finish_scores(int i, int key) {
    fence_registers(scores_);
    release(&tiles_.barriers->keys_empty[i % Config::kStages]);
    const bool masked = key + kHopperKeys - 1 > first_masked_ || key <= last_windowed_;
    if (p_.softcap > 0.0f || p_.slopes != nullptr) {
      apply_rules(key, true);
    } else if (masked) {
      apply_rules(key, false);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = -INFINITY;
#pragma unroll
      for (int n = 0; n < kHopperKeys / 8; ++n) {
        most = fmaxf(most, fmaxf(scores_[4 * n + 2 * h], scores_[4 * n + 2 * h + 1]));
      }
      const float next = fmaxf(max_score_[h], row_max(most));
      const float base = next == -INFINITY ? 0.0f : next;
      rescale_[h] = power_of_two(max_score_[h] - base);
      max_score_[h] = next;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kHopperKeys / 8; ++n) {
#pragma unroll
        for (int e = 4 * n + 2 * h; e < 4 * n + 2 * h + 2; ++e) {
          scores_[e] = power_of_two(scores_[e] - base);
          sum += scores_[e];
        }
      }
      exp_sum_[h] = exp_sum_[h] * rescale_[h] + sum;
    }
  }

  // Applies the mask and, with `bends`, the soft cap and ALiBi slopes.
  __device__ __forceinline__ void apply_rules(int key, bool bends) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const RowRule& rule = rows_[h];
#pragma unroll
      for (int n = 0; n < kHopperKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = key + 8 * n + 2 * (lane_ & 3) + e;
          float& score = scores_[4 * n + 2 * h + e];
          const float ruled = bends ? ruled_score(p_, rule, score, column) : score;
          score = is_visible(p_, rule, column) ? ruled : -INFINITY;
        }
      }
    }
  }

  __device__ __forceinline__ void pack_probs() {
#pragma unroll
    for (int k = 0; k < kHopperKeys / 16; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        probs_[k][e] = pack_halves(scores_[8 * k + 2 * e], scores_[8 * k + 2 * e + 1]);
      }
    }
  }

  // Writes zeros to the value rows beyond the sequence's end, which may hold NaN: P is 0 there, and
  // 0 · NaN would spoil the sum.
  __device__ __forceinline__ void clear_missing(int i, int key) const {
    const int present = task_.span.past + task_.span.tokens - key;
    if (present >= kHopperKeys) return;
    std::byte* values = tiles_.values(i % Config::kStages);
    constexpr int kChunks = 8 * Config::kBoxes;  // 16-byte chunks of a row
    const int thread = static_cast<int>(threadIdx.x) - 128;
    for (int c = thread; c < (kHopperKeys - present) * kChunks; c += Config::kConsumerThreads) {
      const int row = present + c / kChunks;
      *reinterpret_cast<uint4*>(values + c % kChunks / 8 * Config::kBoxBytes + row * 128 +
                                c % 8 * 16) = make_uint4(0, 0, 0, 0);
    }
    async_fence();
    asm volatile("bar.sync 1, %0;" ::"n"(Config::kConsumerThreads) : "memory");
  }

  const AttentionParams& p_;
  const HopperTask& task_;
  const HopperTiles<Config>& tiles_;
  const float2* rope_table_;
  int lane_;
  int first_row_;  // row_of(0)
  int first_masked_;
  int last_windowed_;
  RowRule rows_[2];
  std::uint32_t queries_[kDim / 16][4];
  float scores_[kHopperKeys / 2];
  std::uint32_t probs_[kHopperKeys / 16][4];
  float out_[kDim / 2];
  float max_score_[2] = {-INFINITY, -INFINITY};
  float exp_sum_[2] = {0.0f,
                       0.0f};  // Σ P of this lane's columns alone; each_sum() adds the lanes up
  float rescale_[2] = {1.0f, 1.0f};
};

#endif

// Grid (kv heads, query tiles, spans).
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    hopper_prefill_kernel(const __grid_constant__ AttentionParams p,
                          const __grid_constant__ CUtensorMap keys,
                          const __grid_constant__ CUtensorMap values, const float2* rope_table) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  pdl_trigger();
  extern __shared__ std::byte raw[];
  __shared__ HopperBarriers<Config::kStages> barriers;
  const HopperTiles<Config> tiles(raw, barriers);
  pdl_wait();
  HopperTask task;
  // The last rows see the most keys, so their tiles start first: the launch then ends evenly.
  const auto tile = static_cast<int>(gridDim.y - 1 - blockIdx.y);
  if (!find_task<Config::kRows>(p, static_cast<int>(blockIdx.x), tile, task)) return;
  if (threadIdx.x < 128) {
    decrease_registers<24>();
    if (threadIdx.x == 0) produce_tiles(p, task, tiles, &keys, &values);
  } else {
    increase_registers<240>();
    HopperRows<Config> rows(p, task, tiles, rope_table);
    rows.attend();
    rows.write_results();
  }
#endif
}

}  // namespace bl::cuda
