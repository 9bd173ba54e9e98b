#pragma once
// What a warp of the decode kernel reads of the cache: where that lies in shared memory, and the
// copies on the way to there.

#include <type_traits>

#include "backend/cuda/attention/attention_case.cuh"
#include "backend/cuda/attention/attention_codes.cuh"
#include "backend/cuda/attention/attention_fresh.cuh"
#include "backend/cuda/attention/attention_join.cuh"
#include "backend/cuda/attention/attention_task.cuh"
#include "backend/cuda/attention/attention_tile.cuh"
#include "backend/cuda/device/cache_policy.cuh"
#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {

// `kTiles`: of eight query rows.
template <CacheTypes kTypes_, int kDim_, int kTiles_, DecodeWay kWay_,
          DecodeCase kCase_ = DecodeCase::kAny>
struct DecodeRoom {
  static constexpr CacheTypes kTypes = kTypes_;
  static constexpr int kDim = kDim_;
  static constexpr int kTiles = kTiles_;
  static constexpr DecodeWay kWay = kWay_;
  static constexpr DecodeCase kCase = kCase_;
  static constexpr bool kPlain = kCase != DecodeCase::kAny;
  static constexpr bool kHalf = kWay == DecodeWay::kHalves;
  static constexpr bool kCodes = kWay == DecodeWay::kCodes;
  static constexpr int kRows = kFewRows * kTiles;
  // Of 16 keys or values; there are both.
  static constexpr int kEntries = kHalf ? (kDim > 64 ? 3 : 4) : 4;
  static constexpr bool kQueryInRegisters = kTiles == 1 && kDim <= 128;
  static constexpr int kMostWarps = kTiles == 1 && kDim <= 128 ? kWideWarps : kUsualWarps;
  static constexpr bool kClusters =
      kTiles == 1 && kDim <= 128 && (!kPlain || kCase == DecodeCase::kPlainCluster);
  static constexpr bool kAlone = kCase == DecodeCase::kPlainAlone;  // there is one piece
  static constexpr bool kPagesInLanes = kAlone || kCase == DecodeCase::kPlainCluster;
  using Params = CaseParams<kCase, kTypes, kDim>;
  static constexpr int kTileBytes = kWarpKeys * kTileStride<kDim> * 2;
  static constexpr int kQueryBytes = kRows * kTileStride<kDim> * 2;
  static constexpr int kPartBytes = kClusters ? sizeof(ClusterPart<kDim>) : 0;
  static constexpr int kRingsAt = kQueryBytes + kPartBytes;
  static constexpr int kPlaceBytes = kRows * kDim * 2;  // of LeavingParams, behind the others
  // Scores that exceed what weights are relative to by less change nothing. Weights that meet the
  // scales of codes must not exceed 1.
  static constexpr float kSlack = kHalf ? 6.0f : 0.0f;
  using Join = JoinRoom<kDim, kTiles>;

  static BL_HD int entry_bytes(int k_bytes, int v_bytes) {
    if constexpr (kHalf) return kTileBytes;
    if constexpr (kCodes) {
      constexpr int kKeys = CodeTile<kTypes.k, kDim>::kBytes;
      constexpr int kValues = CodeTile<kTypes.v, kDim>::kBytes;
      return kKeys > kValues ? kKeys : kValues;
    }
    return kWarpKeys * (k_bytes > v_bytes ? k_bytes : v_bytes);
  }
  // Of a warp: its ring, and one tile where rows are expanded.
  static BL_HD int warp_bytes(int k_bytes, int v_bytes) {
    const int ring =
        kEntries * entry_bytes(k_bytes, v_bytes) + (kWay == DecodeWay::kTile ? kTileBytes : 0);
    return ring > Join::kWarpBytes ? ring : Join::kWarpBytes;
  }
  static BL_HD int shared_bytes(int warps, int k_bytes, int v_bytes) {
    return kRingsAt + warps * warp_bytes(k_bytes, v_bytes);
  }
  static_assert(Join::kWarpBytes % 16 == 0 && kQueryBytes % 16 == 0 && kPartBytes % 16 == 0);
  // The weights of pieces for the joining CTA fit in the rings.
  static_assert(kUsualWarps * Join::kWarpBytes >=
                (kQueryTile * kMaxPieces + kUsualWarps * kDim) * 4);
};

// The ring of a warp: runs of 16 of its keys and the values that belong to them, in turns.
template <class Room>
class DecodeRing {
 public:
  static constexpr CacheTypes kTypes = Room::kTypes;
  static constexpr int kDim = Room::kDim;

  // `rings`: of all warps; `fresh`: the new key and value that are not read from the cache.
  __device__ __forceinline__ DecodeRing(const AttentionParams& params, const DecodeTask& task,
                                        std::byte* rings, const FreshRows<kDim>* fresh)
      : p_(params), task_(task), fresh_(fresh) {
    step_ = static_cast<int>(blockDim.x) / 32 * kWarpKeys;
    entry_bytes_ = Room::entry_bytes(p_.k_row.bytes, p_.v_row.bytes);
    room_ = rings + warp_index() * Room::warp_bytes(p_.k_row.bytes, p_.v_row.bytes);
    next_ = task.begin + warp_index() * kWarpKeys;
    if constexpr (Room::kHalf && !Room::kPlain) {
      if (p_.k_row.dim == kDim && p_.v_row.dim == kDim) return;
      // An entry is of keys in one round and of values in another.
      const int dim = min(p_.k_row.dim, p_.v_row.dim);
#pragma unroll 1
      for (int e = 0; e < Room::kEntries; ++e) {
        clear_columns<kDim, kWarpKeys>(team(), dim, half_entry(e));
      }
      __syncwarp();
    }
  }
  // Starts reading keys of earlier steps.
  __device__ __forceinline__ void open_old() {
#pragma unroll 1
    for (; opened_ < Room::kEntries; ++opened_) {
      const int end = min(next_ + kWarpKeys, task_.end);
      if (!kAllAreOld && end > task_.span.past && fresh_ == nullptr) break;
      prefetch(opened_);
    }
  }
  // When the others are there.
  __device__ __forceinline__ void open_rest() {
    if constexpr (!kAllAreOld) {
#pragma unroll 1
      for (; opened_ < Room::kEntries; ++opened_) prefetch(opened_);
    }
  }

  // The next run: keys, then the values that belong to them. `key`: the first one's.
  __device__ __forceinline__ int open_keys(int key) {
    open(key, [&] { return fresh_->key; });
    return entry_;
  }
  __device__ __forceinline__ int open_values(int key) {
    open(key, [&] { return fresh_->value; });
    return entry_;
  }
  // It has been used.
  __device__ __forceinline__ void close() {
    __syncwarp();
    prefetch(entry_);
    entry_ = entry_ + 1 == Room::kEntries ? 0 : entry_ + 1;
  }
  __device__ __forceinline__ int step() const { return step_; }
  __device__ __forceinline__ std::byte* raw(int entry) const {
    return room_ + entry * entry_bytes_;
  }
  __device__ __forceinline__ __half* half_entry(int entry) const {
    return reinterpret_cast<__half*>(raw(entry));
  }
  __device__ __forceinline__ Team team() const { return {lane_index(), 32}; }

 private:
  // What a CTA reads from the cache was there before the kernel began: the new row goes to `fresh`.
  static constexpr bool kAllAreOld = Room::kPlain && Room::kHalf;
  // Keys so many that a step's do not stay in the second level of the cache until the next step.
  static constexpr bool kReadOnce =
      Room::kCase == DecodeCase::kPlainCluster || Room::kCase == DecodeCase::kPlainParts;

  template <class Row>
  __device__ __forceinline__ void open(int key, const Row& fresh_row) {
    wait_copies<Room::kEntries - 1>();
    __syncwarp();
    if (fresh_ != nullptr) add_fresh(fresh_row(), task_.span.past - key);
  }
  // Row `row` of the tile of binary16 is the new one, if it is one of the tile's.
  __device__ __forceinline__ void add_fresh(const __half* from, int row) {
    if (row < 0 || row >= kWarpKeys) return;
    if (lane_index() < kDim / 8) {
      reinterpret_cast<uint4*>(half_entry(entry_) + row * kTileStride<kDim>)[lane_index()] =
          reinterpret_cast<const uint4*>(from)[lane_index()];
    }
    __syncwarp();
  }

  // copy_half_rows() where all rows are there: without a branch a row.
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
  // Rows of whole tiles, zeros from row `present` on: without a branch at all.
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
      if constexpr (kReadOnce) {
        copy_or_clear(row, from + r * kRowBytes, first + r < present, policy_);
      } else {
        copy_or_clear<16>(row, from + r * kRowBytes, first + r < present);
      }
    }
  }

  // Starts copying this warp's next keys or the values that belong to them, in turns, and counts as
  // a group in any case.
  __device__ __forceinline__ void prefetch(int entry) {
    if (next_ < task_.end) {
      const int index = next_ / kPageSlots;
      const std::int64_t page = Room::kPagesInLanes || index < kFewPages
                                    ? __shfl_sync(kAllLanes, task_.lane_page, index)
                                    : __ldg(task_.pages + index);
      const std::byte* from =
          of_values_ ? p_.v + page * p_.v_page_bytes : p_.k + page * p_.k_page_bytes;
      const int slot = task_.kv_head * kPageSlots + next_ % kPageSlots;
      const int present = (Room::kHalf && fresh_ != nullptr ? task_.span.past : task_.end) - next_;
      if constexpr (Room::kPlain && Room::kHalf) {
        copy_present_rows(from + slot * (2 * kDim), present, half_entry(entry));
      } else {
        copy_rows(of_values_ ? p_.v_row : p_.k_row, from, slot, present, entry);
      }
      if (of_values_) next_ += step_;
      of_values_ = !of_values_;
    }
    commit_copies();
  }
  // `from`: of the page.
  __device__ __forceinline__ void copy_rows(const RowShape& row, const std::byte* from, int slot,
                                            int present, int entry) const {
    from += slot * row.bytes;
    if constexpr (Room::kHalf) {
      if (present >= kWarpKeys) {
        copy_all_rows(row, from, half_entry(entry));
      } else {
        copy_half_rows<kDim, kWarpKeys>(team(), row, from, present, half_entry(entry));
      }
      clear_beyond(row, entry);
    } else if constexpr (Room::kCodes) {
      if (kTypes.are_one() || !of_values_) {
        copy_code_rows<kTypes.k, kDim>(from, present, raw(entry));
      } else {
        copy_code_rows<kTypes.v, kDim>(from, present, raw(entry));
      }
    } else {
      copy_raw_rows<kWarpKeys>(team(), row, from, raw(entry));
    }
  }
  // Keys and values may differ in size: the wider row's elements do not stay behind.
  __device__ __forceinline__ void clear_beyond(const RowShape& row, int entry) const {
    if (row.dim < max(p_.k_row.dim, p_.v_row.dim)) {
      clear_columns<kDim, kWarpKeys>(team(), row.dim, half_entry(entry));
    }
  }

  const AttentionParams& p_;
  const DecodeTask& task_;
  const FreshRows<kDim>* fresh_;
  std::byte* room_ = nullptr;
  int entry_bytes_ = 0;
  int step_ = 0;
  int next_ = 0;    // key that is asked for next
  int opened_ = 0;  // entries that were asked for at the beginning
  int entry_ = 0;   // the next one that is used
  bool of_values_ = false;
  std::uint64_t policy_ = kReadOnce ? evict_first() : 0;
};

}  // namespace bl::cuda
