#pragma once
// A CTA of the kernels for compute capability 9.0, after FlashAttention-3 (arXiv:2407.08608): one
// warp asks the copy engine for tiles of 128 keys and values, warpgroups have 64 query rows each,
// in registers. A warpgroup's products with the values of a tile run beside its exponentials of the
// next one. Here the kernel for prefill, with all keys of its rows; attention_hopper_pieces.cuh has
// the one whose CTAs share them.

#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/attention/rope.cuh"
#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/wgmma.cuh"

namespace bl::cuda {

inline constexpr int kHopperKeys = 128;

// `kWarpgroups`: that multiply; `kStages`: tiles of keys, and as many of values, on their way.
template <int kDim_, int kWarpgroups, int kStages_>
struct HopperRoom {
  static constexpr int kDim = kDim_;
  static constexpr int kStages = kStages_;
  static constexpr int kRows = 64 * kWarpgroups;
  static constexpr int kReaders = 128 * kWarpgroups;  // threads
  static constexpr int kThreads = 128 + kReaders;
  static constexpr int kBoxBytes = kHopperKeys * 128;  // 64 elements of each row
  static constexpr int kBoxes = kDim / 64;
  static constexpr int kTileBytes = kBoxes * kBoxBytes;
  // Keys, then values; tiles are aligned to 1024 bytes. Behind them each warp's 16 rows of queries,
  // then of results: a row's rest spreads rows over the banks.
  static constexpr int kRowBytes = kDim * 2 + 16;
  static constexpr int kWarpRowsBytes = 16 * kRowBytes;
  static constexpr int kRowsAt = 2 * kStages * kTileBytes;
  static constexpr int kBytes = kRowsAt + kReaders / 32 * kWarpRowsBytes + 1024;
};

template <int kDim>
using HopperPrefillRoom = HopperRoom<kDim, 2, 2>;

// A row of a span: a token and a head of its kv head's.
struct QueryRow {
  int row;
  int group;
  int token;
  int head;
  __device__ __forceinline__ QueryRow(int of_span, int heads)
      : row(of_span), group(heads), token(of_span / heads), head(of_span % heads) {}
  // `rows` further, unless that were behind the last. Without branches, which loads could not be
  // moved across.
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

template <int kStages>
struct HopperBarriers {
  std::uint64_t keys_there[kStages];
  std::uint64_t keys_read[kStages];
  std::uint64_t values_there[kStages];
  std::uint64_t values_read[kStages];
};

struct HopperTask {
  SpanEntry span;
  const std::int32_t* pages = nullptr;
  int kv_head = 0;
  int first_row = 0;
  int begin = 0;  // keys [begin, end), whole tiles
  int end = 0;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Tile `tile` of kRows query rows of the span blockIdx.z, and all keys that they see. False where
// there are no such rows.
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

template <class Room>
struct HopperTiles {
  std::byte* shared = nullptr;
  HopperBarriers<Room::kStages>* barriers = nullptr;

  // Of a CTA's shared memory. All threads call.
  __device__ __forceinline__ HopperTiles(std::byte* raw, HopperBarriers<Room::kStages>& of_cta)
      : shared(reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(raw) + 1023) / 1024 *
                                            1024)),
        barriers(&of_cta) {
    if (threadIdx.x == 0) {
      constexpr int kWarps = Room::kReaders / 32;
      for (int stage = 0; stage < Room::kStages; ++stage) {
        barrier_init(&barriers->keys_there[stage], 1);
        barrier_init(&barriers->values_there[stage], 1);
        barrier_init(&barriers->keys_read[stage], kWarps);
        barrier_init(&barriers->values_read[stage], kWarps);
      }
      barrier_init_fence();
    }
    __syncthreads();
  }
  __device__ __forceinline__ std::byte* keys(int stage) const {
    return shared + stage * Room::kTileBytes;
  }
  __device__ __forceinline__ std::byte* values(int stage) const {
    return keys(Room::kStages + stage);
  }
  // Of a warp that multiplies.
  __device__ __forceinline__ std::byte* rows() const {
    return shared + Room::kRowsAt + (warp_index() - 4) * Room::kWarpRowsBytes;
  }
};

// One thread: asks for all tiles of the task. Those without new keys were there before the kernel
// before.
template <class Room>
__device__ __forceinline__ void fetch_tiles(const AttentionParams& p, const HopperTask& task,
                                            const HopperTiles<Room>& tiles, const CUtensorMap* k,
                                            const CUtensorMap* v) {
  auto& barriers = *tiles.barriers;
  bool waited = false;
  int i = 0;
  for (int key = task.begin; key < task.end; key += kHopperKeys, ++i) {
    if (!waited && key + kHopperKeys > task.span.past) {
      pdl_wait();
      waited = true;
    }
    const int stage = i % Room::kStages;
    const auto before = static_cast<std::uint32_t>(i / Room::kStages & 1) ^ 1u;
    const int page = __ldg(task.pages + key / kPageSlots);
    const int row = (page * p.kv_heads + task.kv_head) * kPageSlots + key % kPageSlots;
    const auto fetch = [&](const CUtensorMap* map, std::byte* to, std::uint64_t* there) {
      barrier_expect(there, Room::kTileBytes);
#pragma unroll
      for (int box = 0; box < Room::kBoxes; ++box) {
        tensor_copy(to + box * Room::kBoxBytes, map, 64 * box, row, there);
      }
    };
    barrier_wait(&barriers.keys_read[stage], before);
    fetch(k, tiles.keys(stage), &barriers.keys_there[stage]);
    barrier_wait(&barriers.values_read[stage], before);
    fetch(v, tiles.values(stage), &barriers.values_there[stage]);
  }
}

// A warpgroup and its 64 rows.
template <class Room>
class HopperRows {
 public:
  static constexpr int kDim = Room::kDim;

  __device__ __forceinline__ HopperRows(const AttentionParams& params, const HopperTask& task,
                                        const HopperTiles<Room>& tiles, const float2* turns)
      : p_(params),
        task_(task),
        tiles_(tiles),
        turns_(turns),
        lane_(lane_index()),
        first_row_(task.first_row + (warp_index() - 4) * 16 + lane_ / 4) {
    const int first = task.first_row + (warp_index() / 4 - 1) * 64;
    const int last = min(first + 63, task.span.tokens * p_.group - 1);
    first_masked_ = task.span.past + first / p_.group;
    last_windowed_ = p_.window > 0 ? task.span.past + last / p_.group - p_.window : -1;
#pragma unroll
    for (int h = 0; h < 2; ++h) rows_[h] = row_rule(p_, task.span, task.kv_head, row_of(h));
  }

  // All keys of the task, of which there is one at least.
  __device__ __forceinline__ void attend() {
    load_queries();
#pragma unroll
    for (float& x : out_) x = 0.0f;
    int i = 0;
    int key = task_.begin;
    begin_scores(i);
    wgmma_wait_group<0>();
    take_scores(i, key);
    pack_weights();
    for (key += kHopperKeys, ++i; key < task_.end; key += kHopperKeys, ++i) {
      begin_scores(i);
      begin_values(i - 1);
      wgmma_wait_group<1>();
      take_scores(i, key);
      wgmma_wait_group<0>();
      take_values(i - 1);
      pack_weights();
    }
    barrier_wait(&tiles_.barriers->values_there[(i - 1) % Room::kStages], phase_of(i - 1));
    clear_missing(i - 1, key - kHopperKeys);
    begin_values(i - 1);
    wgmma_wait_group<0>();
    settle(out_);
  }

  // visit(row of the CTA's, its largest score, sum of weights, values(n): elements 8n + 2 · (lane
  // mod 4) and the one behind it of Σ weight · value) for this lane's rows. The four lanes of a row
  // call together.
  template <class Visit>
  __device__ __forceinline__ void each_sum(const Visit& visit) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      visit(row_of(h) - task_.first_row, top_[h], row_sum(weight_[h]), [&](int n) {
        return float2{out_[4 * n + 2 * h], out_[4 * n + 2 * h + 1]};
      });
    }
  }

  __device__ __forceinline__ void write_results() {
    const int rows = task_.span.tokens * p_.group;
    std::byte* own = tiles_.rows() + lane_ / 4 * Room::kRowBytes + (lane_ & 3) * 4;
    each_sum([&](int row_of_cta, float top, float weight, const auto& values) {
      const int row = task_.first_row + row_of_cta;
      const int head = task_.kv_head * p_.group + row % p_.group;
      // Infinite where the sink outweighs all: the result is zero then, as it should be.
      if (p_.sinks != nullptr) weight += power_of_two(p_.sinks[head] * kLog2E - top);
      const float inverse = 1.0f / weight;
      if (p_.staged_out != nullptr) {
#pragma unroll
        for (int n = 0; n < kDim / 8; ++n) {
          const float2 sum = values(n);
          *reinterpret_cast<std::uint32_t*>(own + 16 * n) =
              pack_halves(sum.x * inverse, sum.y * inverse);
        }
        own += 8 * Room::kRowBytes;
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
    return static_cast<std::uint32_t>(i / Room::kStages & 1);
  }

  // The warp's first row, of the span.
  __device__ __forceinline__ int warp_row() const { return first_row_ - lane_ / 4; }

  // Where a row's head begins among tokens' rows of `stride` elements.
  __device__ __forceinline__ std::int64_t head_at(const QueryRow& row, std::int64_t stride) const {
    return (task_.span.first_token + row.token) * stride +
           static_cast<std::int64_t>(task_.kv_head * p_.group + row.head) * kDim;
  }

  // The warp's rows of shared memory, 16 bytes a lane.
  __device__ __forceinline__ void store_halves() const {
    constexpr int kLanes = kDim / 8;  // of a row
    constexpr int kAtOnce = 32 / kLanes;
    const int last = task_.span.tokens * p_.group - 1;
    const int first = warp_row() + lane_ / kLanes;
    const int e = lane_ % kLanes * 8;
    const std::byte* from = tiles_.rows() + lane_ / kLanes * Room::kRowBytes + e * 2;
    QueryRow at(min(first, last), p_.group);
    __syncwarp();
#pragma unroll
    for (int row = 0; row < 16; row += kAtOnce, at.advance(kAtOnce, last)) {
      if (first + row > last) break;
      __half* to = p_.staged_out + head_at(at, p_.out_stride) + e;
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + row * Room::kRowBytes);
    }
  }

  // This lane's row (h: the lower or the upper eight of its warp's).
  __device__ __forceinline__ int row_of(int h) const { return first_row_ + 8 * h; }

  // A row's elements side by side, two of each half of a head a lane, so that what turns them is at
  // hand: as fragments lie, a warp would touch eight rows an instruction.
  __device__ __forceinline__ void load_queries() {
    constexpr int kLanes = kDim / 4;  // of a row, two elements of each half a lane
    constexpr int kAtOnce = 32 / kLanes;
    const int last = task_.span.tokens * p_.group - 1;
    const int e = lane_ % kLanes * 2;
    std::byte* to = tiles_.rows() + lane_ / kLanes * Room::kRowBytes + e * 2;
    const float factor = p_.softcap > 0.0f ? p_.scale / p_.softcap : p_.scale * kLog2E;
    const auto packed = [factor](float a, float b) {
      return pack_halves(bounded_half(a * factor), bounded_half(b * factor));
    };
    QueryRow at(min(warp_row() + lane_ / kLanes, last), p_.group);
    constexpr int kLoads = 16 / kAtOnce;  // all under way at a time
    float2 first[kLoads];
    float2 second[kLoads];
    float4 turn[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i, at.advance(kAtOnce, last)) {
      const float* from = p_.q + head_at(at, p_.q_stride) + e;
      first[i] = *reinterpret_cast<const float2*>(from);
      second[i] = *reinterpret_cast<const float2*>(from + kDim / 2);
      if (turns_ == nullptr) continue;
      const std::int64_t token = task_.span.first_token + at.token;
      turn[i] = *reinterpret_cast<const float4*>(turns_ + token * (kDim / 2) + e);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      float2 x = first[i];
      float2 y = second[i];
      if (turns_ != nullptr) {
        const float2 by[] = {{turn[i].x, turn[i].y}, {turn[i].z, turn[i].w}};
        x = {turned_first(by[0], first[i].x, second[i].x),
             turned_first(by[1], first[i].y, second[i].y)};
        y = {turned_second(by[0], first[i].x, second[i].x),
             turned_second(by[1], first[i].y, second[i].y)};
      }
      std::byte* place = to + i * kAtOnce * Room::kRowBytes;
      *reinterpret_cast<std::uint32_t*>(place) = packed(x.x, x.y);
      *reinterpret_cast<std::uint32_t*>(place + kDim) = packed(y.x, y.y);
    }
    __syncwarp();
    const std::byte* own = tiles_.rows() + lane_ % 16 * Room::kRowBytes + lane_ / 16 * 16;
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      load_matrices(queries_[k], reinterpret_cast<const __half*>(own + 32 * k));
    }
  }
  static __device__ __forceinline__ float bounded_half(float x) {
    return fminf(fmaxf(x, -65504.0f), 65504.0f);
  }

  // ---- Products

  __device__ __forceinline__ void begin_scores(int i) {
    const int stage = i % Room::kStages;
    barrier_wait(&tiles_.barriers->keys_there[stage], phase_of(i));
    const std::uint32_t keys = shared_address(tiles_.keys(stage));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      const std::uint64_t b = row_operand(keys + k / 4 * Room::kBoxBytes + k % 4 * 32);
      if (k == 0) {
        multiply_rows_first(scores_, queries_[k], b);
      } else {
        multiply_rows(scores_, queries_[k], b);
      }
    }
    wgmma_commit_group();
  }

  __device__ __forceinline__ void begin_values(int i) {
    const int stage = i % Room::kStages;
    barrier_wait(&tiles_.barriers->values_there[stage], phase_of(i));
    const std::uint32_t values = shared_address(tiles_.values(stage));
    settle(out_);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kHopperKeys / 16; ++k) {
      multiply_columns(out_, weights_[k], column_operand(values + k * 2048, Room::kBoxBytes));
    }
    wgmma_commit_group();
  }

  // Says that this warp has read a tile.
  __device__ __forceinline__ void release(std::uint64_t* read) const {
    __syncwarp();
    if (lane_ == 0) barrier_arrive(read);
  }

  __device__ __forceinline__ void take_values(int i) {
    settle(out_);
    release(&tiles_.barriers->values_read[i % Room::kStages]);
#pragma unroll
    for (int e = 0; e < kDim / 2; ++e) out_[e] *= shrink_[e / 2 % 2];
  }

  // Scores become weights, in place.
  __device__ __forceinline__ void take_scores(int i, int key) {
    settle(scores_);
    release(&tiles_.barriers->keys_read[i % Room::kStages]);
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
      const float next = fmaxf(top_[h], row_max(most));
      const float base = next == -INFINITY ? 0.0f : next;
      shrink_[h] = power_of_two(top_[h] - base);
      top_[h] = next;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kHopperKeys / 8; ++n) {
#pragma unroll
        for (int e = 4 * n + 2 * h; e < 4 * n + 2 * h + 2; ++e) {
          scores_[e] = power_of_two(scores_[e] - base);
          sum += scores_[e];
        }
      }
      weight_[h] = weight_[h] * shrink_[h] + sum;
    }
  }

  // `bends`: scores change, too.
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

  __device__ __forceinline__ void pack_weights() {
#pragma unroll
    for (int k = 0; k < kHopperKeys / 16; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        weights_[k][e] = pack_halves(scores_[8 * k + 2 * e], scores_[8 * k + 2 * e + 1]);
      }
    }
  }

  // Rows of values beyond the sequence's end hold anything: zeros instead.
  __device__ __forceinline__ void clear_missing(int i, int key) const {
    const int present = task_.span.past + task_.span.tokens - key;
    if (present >= kHopperKeys) return;
    std::byte* values = tiles_.values(i % Room::kStages);
    constexpr int kChunks = 8 * Room::kBoxes;  // of 16 bytes, of a row
    const int thread = static_cast<int>(threadIdx.x) - 128;
    for (int c = thread; c < (kHopperKeys - present) * kChunks; c += Room::kReaders) {
      const int row = present + c / kChunks;
      *reinterpret_cast<uint4*>(values + c % kChunks / 8 * Room::kBoxBytes + row * 128 +
                                c % 8 * 16) = make_uint4(0, 0, 0, 0);
    }
    async_fence();
    asm volatile("bar.sync 1, %0;" ::"n"(Room::kReaders) : "memory");
  }

  const AttentionParams& p_;
  const HopperTask& task_;
  const HopperTiles<Room>& tiles_;
  const float2* turns_;
  int lane_;
  int first_row_;  // of this lane
  int first_masked_;
  int last_windowed_;
  RowRule rows_[2];
  std::uint32_t queries_[kDim / 16][4];
  float scores_[kHopperKeys / 2];
  std::uint32_t weights_[kHopperKeys / 16][4];
  float out_[kDim / 2];
  float top_[2] = {-INFINITY, -INFINITY};
  float weight_[2] = {0.0f, 0.0f};  // of this lane's columns only, until the end
  float shrink_[2] = {1.0f, 1.0f};
};

#endif

// Grid (kv heads, row tiles, spans).
template <class Room>
__global__ void __launch_bounds__(Room::kThreads, 1)
    hopper_prefill_kernel(const __grid_constant__ AttentionParams p,
                          const __grid_constant__ CUtensorMap keys,
                          const __grid_constant__ CUtensorMap values, const float2* turns) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  pdl_trigger();
  extern __shared__ std::byte raw[];
  __shared__ HopperBarriers<Room::kStages> barriers;
  const HopperTiles<Room> tiles(raw, barriers);
  pdl_wait();
  HopperTask task;
  // The last rows see most keys: they come first, so that the end of the launch is even.
  const auto tile = static_cast<int>(gridDim.y - 1 - blockIdx.y);
  if (!find_task<Room::kRows>(p, static_cast<int>(blockIdx.x), tile, task)) return;
  if (threadIdx.x < 128) {
    give_registers<24>();
    if (threadIdx.x == 0) fetch_tiles(p, task, tiles, &keys, &values);
  } else {
    take_registers<240>();
    HopperRows<Room> rows(p, task, tiles, turns);
    rows.attend();
    rows.write_results();
  }
#endif
}

}  // namespace bl::cuda
