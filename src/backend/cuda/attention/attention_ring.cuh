#pragma once
// The shared memory of the decode kernel, and the pipeline through which a warp reads keys and
// values from the cache.

#include <type_traits>

#include "backend/cuda/attention/attention_codes.cuh"
#include "backend/cuda/attention/attention_combine.cuh"
#include "backend/cuda/attention/attention_fresh.cuh"
#include "backend/cuda/attention/attention_specialization.cuh"
#include "backend/cuda/attention/attention_task.cuh"
#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/device/cache_policy.cuh"
#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {

// The tile shapes and shared memory layout of one decode kernel: query tile, ClusterPartial
// (kernels that can combine in clusters), then each warp's ring; behind these, fragment offsets
// where results are staged. `kTiles` is the number of tiles of eight query rows.
template <CacheTypes kTypes_, int kDim_, int kTiles_, FragmentSource kFragmentSource_,
          DecodeSpecialization kSpecialization_ = DecodeSpecialization::kAny>
struct DecodeConfig {
  static constexpr CacheTypes kTypes = kTypes_;
  static constexpr int kDim = kDim_;
  static constexpr int kTiles = kTiles_;
  static constexpr FragmentSource kFragmentSource = kFragmentSource_;
  static constexpr DecodeSpecialization kSpecialization = kSpecialization_;
  static constexpr bool kPlain = kSpecialization != DecodeSpecialization::kAny;
  static constexpr bool kHalf = kFragmentSource == FragmentSource::kHalves;
  static constexpr bool kCodes = kFragmentSource == FragmentSource::kCodes;
  static constexpr int kRows = kFewRows * kTiles;
  // Each stage holds 16 rows, alternately of keys and of values.
  static constexpr int kStages = kHalf ? (kDim > 64 ? 3 : 4) : 4;
  static constexpr bool kQueryInRegisters = kTiles == 1 && kDim <= 128;
  static constexpr int kMostWarps = kTiles == 1 && kDim <= 128 ? kWideWarps : kUsualWarps;
  static constexpr bool kClusters =
      kTiles == 1 && kDim <= 128 &&
      (!kPlain || kSpecialization == DecodeSpecialization::kPlainCluster);
  static constexpr bool kOneSplit =
      kSpecialization ==
      DecodeSpecialization::kPlainOneSplit;  // one KV split: nothing to combine but the warps
  static constexpr bool kPagesInLanes =
      kOneSplit || kSpecialization == DecodeSpecialization::kPlainCluster;
  using Params = CaseParams<kSpecialization, kTypes, kDim>;
  static constexpr int kTileBytes = kWarpKeys * kTileStride<kDim> * 2;
  static constexpr int kQueryBytes = kRows * kTileStride<kDim> * 2;
  static constexpr int kPartialBytes = kClusters ? sizeof(ClusterPartial<kDim>) : 0;
  static constexpr int kRingsAt = kQueryBytes + kPartialBytes;
  // DecodeTask::fragment_offsets, behind everything else; only with StagedParams.
  static constexpr int kFragmentOffsetBytes = kRows * kDim * 2;
  // The running maximum follows only when a score exceeds it by more than this (log2 units), so
  // that rescaling is rare. It is 0 for coded values, because P is multiplied by their scales in
  // binary16 and must not exceed 1.
  static constexpr float kSlack = kHalf ? 6.0f : 0.0f;
  using Combine = CombineBuffers<kDim, kTiles>;

  static BL_HD int stage_bytes(int k_bytes, int v_bytes) {
    if constexpr (kHalf) return kTileBytes;
    if constexpr (kCodes) {
      constexpr int kKeys = CodeTile<kTypes.k, kDim>::kBytes;
      constexpr int kValues = CodeTile<kTypes.v, kDim>::kBytes;
      return kKeys > kValues ? kKeys : kValues;
    }
    return kWarpKeys * (k_bytes > v_bytes ? k_bytes : v_bytes);
  }
  // A warp's ring, and its binary16 tile where rows are dequantized to one. CombineBuffers reuse
  // this memory at the end.
  static BL_HD int warp_bytes(int k_bytes, int v_bytes) {
    const int ring = kStages * stage_bytes(k_bytes, v_bytes) +
                     (kFragmentSource == FragmentSource::kTile ? kTileBytes : 0);
    return ring > Combine::kWarpBytes ? ring : Combine::kWarpBytes;
  }
  static BL_HD int shared_bytes(int warps, int k_bytes, int v_bytes) {
    return kRingsAt + warps * warp_bytes(k_bytes, v_bytes);
  }
  static_assert(Combine::kWarpBytes % 16 == 0 && kQueryBytes % 16 == 0 && kPartialBytes % 16 == 0);
  // combine_splits() reuses the rings for the factors of the KV splits and a row for each warp.
  static_assert(kUsualWarps * Combine::kWarpBytes >=
                (kQueryTile * kMaxKvSplits + kUsualWarps * kDim) * 4);
};

// The cp.async pipeline of one warp: stages of 16 of its keys and of the values that belong to
// them, in turn. The warp is producer and consumer, so cp.async groups and __syncwarp() take the
// place of full and empty barriers.
template <class Config>
class DecodeRing {
 public:
  static constexpr CacheTypes kTypes = Config::kTypes;
  static constexpr int kDim = Config::kDim;

  // `rings`: the rings of all warps. `fresh`: the new token's key and value in binary16, which are
  // inserted into the tile instead of being read from the cache; or null.
  __device__ __forceinline__ DecodeRing(const AttentionParams& params, const DecodeTask& task,
                                        std::byte* rings, const FreshRows<kDim>* fresh)
      : p_(params), task_(task), fresh_(fresh) {
    step_ = static_cast<int>(blockDim.x) / 32 * kWarpKeys;
    stage_bytes_ = Config::stage_bytes(p_.k_row.bytes, p_.v_row.bytes);
    smem_ = rings + warp_index() * Config::warp_bytes(p_.k_row.bytes, p_.v_row.bytes);
    next_ = task.begin + warp_index() * kWarpKeys;
    if constexpr (Config::kHalf && !Config::kPlain) {
      if (p_.k_row.dim == kDim && p_.v_row.dim == kDim) return;
      // A stage holds keys in one round and values in another, so clear for the narrower of them.
      const int dim = min(p_.k_row.dim, p_.v_row.dim);
#pragma unroll 1
      for (int e = 0; e < Config::kStages; ++e) {
        clear_columns<kDim, kWarpKeys>(team(), dim, half_stage(e));
      }
      __syncwarp();
    }
  }
  // Fills the stages whose rows were written by earlier steps. Allowed before pdl_wait().
  __device__ __forceinline__ void prefetch_past() {
#pragma unroll 1
    for (; prefetched_ < Config::kStages; ++prefetched_) {
      const int end = min(next_ + kWarpKeys, task_.end);
      if (!kAllInCache && end > task_.span.past && fresh_ == nullptr) break;
      refill(prefetched_);
    }
  }
  // Fills the remaining stages. Call it when the new rows are in the cache.
  __device__ __forceinline__ void prefetch_rest() {
    if constexpr (!kAllInCache) {
#pragma unroll 1
      for (; prefetched_ < Config::kStages; ++prefetched_) refill(prefetched_);
    }
  }

  // Waits for the next stage and returns it: keys first, then the values that belong to them.
  // `key`: the first key of the run.
  __device__ __forceinline__ int acquire_keys(int key) {
    acquire(key, [&] { return fresh_->key; });
    return stage_;
  }
  __device__ __forceinline__ int acquire_values(int key) {
    acquire(key, [&] { return fresh_->value; });
    return stage_;
  }
  // Marks the current stage as read: starts its next copy and moves on to the next stage.
  __device__ __forceinline__ void release() {
    __syncwarp();
    refill(stage_);
    stage_ = stage_ + 1 == Config::kStages ? 0 : stage_ + 1;
  }
  __device__ __forceinline__ int step() const { return step_; }
  __device__ __forceinline__ std::byte* raw(int stage) const {
    return smem_ + stage * stage_bytes_;
  }
  __device__ __forceinline__ __half* half_stage(int stage) const {
    return reinterpret_cast<__half*>(raw(stage));
  }
  __device__ __forceinline__ Team team() const { return {lane_index(), 32}; }

 private:
  // Everything that the CTA reads from the cache was written by earlier steps, because the new row
  // comes from `fresh_`.
  static constexpr bool kAllInCache = Config::kPlain && Config::kHalf;
  // With several KV splits there are so many keys that they do not stay in L2 until the next step.
  static constexpr bool kEvictFirst =
      Config::kSpecialization == DecodeSpecialization::kPlainCluster ||
      Config::kSpecialization == DecodeSpecialization::kPlainPartials;

  template <class Row>
  __device__ __forceinline__ void acquire(int key, const Row& fresh_row) {
    wait_copies<Config::kStages - 1>();
    __syncwarp();
    if (fresh_ != nullptr) add_fresh(fresh_row(), task_.span.past - key);
  }
  // Inserts the new token's row as row `row` of the binary16 tile, if it lies in this tile.
  __device__ __forceinline__ void add_fresh(const __half* from, int row) {
    if (row < 0 || row >= kWarpKeys) return;
    if (lane_index() < kDim / 8) {
      reinterpret_cast<uint4*>(half_stage(stage_) + row * kTileStride<kDim>)[lane_index()] =
          reinterpret_cast<const uint4*>(from)[lane_index()];
    }
    __syncwarp();
  }

  // copy_half_rows() for a run whose rows all exist: no branch for each row.
  __device__ __forceinline__ void copy_all_rows(const RowShape& row, const std::byte* from,
                                                __half* tile) const {
    constexpr int kChunks = kDim / 8;
    const int chunk = lane_index() % kChunks;
    if (chunk * 8 >= row.dim) return;
    from += lane_index() / kChunks * row.bytes + chunk * 16;
    tile += lane_index() / kChunks * kTileStride<kDim> + chunk * 8;
#pragma unroll
    for (int r = 0; r < kWarpKeys * kChunks / 32; ++r) {
      copy_async(tile + r * (32 / kChunks) * kTileStride<kDim>, from, true);
      from += 32 / kChunks * row.bytes;
    }
  }
  // Copies rows of kDim elements, with zeros from row `present` on, without any branch.
  __device__ __forceinline__ void copy_present_rows(const std::byte* from, int present,
                                                    __half* tile) const {
    constexpr int kChunks = kDim / 8;
    constexpr int kRowBytes = 2 * kDim;
    const int chunk = lane_index() % kChunks;
    const int first = lane_index() / kChunks;
    from += first * kRowBytes + chunk * 16;
    const std::uint32_t to = shared_address(tile + first * kTileStride<kDim> + chunk * 8);
#pragma unroll
    for (int r = 0; r < kWarpKeys; r += 32 / kChunks) {
      const std::uint32_t row = to + r * kTileStride<kDim> * 2;
      if constexpr (kEvictFirst) {
        copy_or_clear(row, from + r * kRowBytes, first + r < present, policy_);
      } else {
        copy_or_clear<16>(row, from + r * kRowBytes, first + r < present);
      }
    }
  }

  // Starts copying this warp's next keys, or the values that belong to them, to a stage. It commits
  // a cp.async group even where nothing is left to copy, so that groups can be counted.
  __device__ __forceinline__ void refill(int stage) {
    if (next_ < task_.end) {
      const int index = next_ / kPageSlots;
      const std::int64_t page = Config::kPagesInLanes || index < kFewPages
                                    ? __shfl_sync(kAllLanes, task_.lane_page, index)
                                    : __ldg(task_.pages + index);
      const std::byte* from =
          next_is_values_ ? p_.v + page * p_.v_page_bytes : p_.k + page * p_.k_page_bytes;
      const int slot = task_.kv_head * kPageSlots + next_ % kPageSlots;
      const int present =
          (Config::kHalf && fresh_ != nullptr ? task_.span.past : task_.end) - next_;
      if constexpr (Config::kPlain && Config::kHalf) {
        copy_present_rows(from + slot * (2 * kDim), present, half_stage(stage));
      } else {
        copy_rows(next_is_values_ ? p_.v_row : p_.k_row, from, slot, present, stage);
      }
      if (next_is_values_) next_ += step_;
      next_is_values_ = !next_is_values_;
    }
    commit_copies();
  }
  // `from`: start of the page.
  __device__ __forceinline__ void copy_rows(const RowShape& row, const std::byte* from, int slot,
                                            int present, int stage) const {
    from += slot * row.bytes;
    if constexpr (Config::kHalf) {
      if (present >= kWarpKeys) {
        copy_all_rows(row, from, half_stage(stage));
      } else {
        copy_half_rows<kDim, kWarpKeys>(team(), row, from, present, half_stage(stage));
      }
      clear_beyond(row, stage);
    } else if constexpr (Config::kCodes) {
      if (kTypes.are_one() || !next_is_values_) {
        copy_code_rows<kTypes.k, kDim>(from, present, raw(stage));
      } else {
        copy_code_rows<kTypes.v, kDim>(from, present, raw(stage));
      }
    } else {
      copy_raw_rows<kWarpKeys>(team(), row, from, raw(stage));
    }
  }
  // Where keys and values differ in size, a stage still holds elements of the wider row: clears
  // them.
  __device__ __forceinline__ void clear_beyond(const RowShape& row, int stage) const {
    if (row.dim < max(p_.k_row.dim, p_.v_row.dim)) {
      clear_columns<kDim, kWarpKeys>(team(), row.dim, half_stage(stage));
    }
  }

  const AttentionParams& p_;
  const DecodeTask& task_;
  const FreshRows<kDim>* fresh_;
  std::byte* smem_ = nullptr;
  int stage_bytes_ = 0;
  int step_ = 0;
  int next_ = 0;        // first key of the next run to copy
  int prefetched_ = 0;  // stages filled so far, before the loop
  int stage_ = 0;       // stage that is read next
  bool next_is_values_ = false;
  std::uint64_t policy_ = kEvictFirst ? evict_first() : 0;
};

}  // namespace bl::cuda
