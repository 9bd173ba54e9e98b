#pragma once
// What the kernels for one token's experts share: the items of a CTA, and the sums of all warps
// with what is made of them.

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/moe/expert_token_args.h"
#include "backend/cuda/moe/stage_mma.cuh"

namespace bl::cuda {

inline constexpr int kRecordBytes = limb_record_bytes(1);

BL_HD constexpr int groups_of(const ExpertTokenArgs& p) {
  return (n_tiles_of(p.out) + p.item_n_tiles - 1) / p.item_n_tiles;
}
BL_HD constexpr int items_of(const ExpertTokenArgs& p) { return groups_of(p) * (p.sums ? 1 : p.k); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The items of a CTA are adjacent.
struct Items {
  int at;
  int end;
  __device__ __forceinline__ explicit Items(const ExpertTokenArgs& p) {
    const int items = items_of(p);
    const auto ctas = static_cast<int>(gridDim.x);
    at = static_cast<int>(blockIdx.x) * items / ctas;
    end = (static_cast<int>(blockIdx.x) + 1) * items / ctas;
  }
};

// The first choice of an item, and its n_tiles.
struct Item {
  int choice;
  int first_n_tile;
  int n_tiles;
  __device__ __forceinline__ Item(const ExpertTokenArgs& p, int number) {
    const int groups = groups_of(p);
    choice = number / groups;
    first_n_tile = (number - choice * groups) * p.item_n_tiles;
    n_tiles = min(p.item_n_tiles, n_tiles_of(p.out) - first_n_tile);
  }
};

__device__ __forceinline__ bool exists(const ExpertTokenArgs& p, int expert) {
  return static_cast<unsigned>(expert) < static_cast<unsigned>(p.expert_count);
}
// The expert of a choice; the first one in place of one that does not exist.
__device__ __forceinline__ int expert_of(const ExpertTokenArgs& p, int choice) {
  const int expert = __ldcg(p.experts + choice);
  return exists(p, expert) ? expert : 0;
}
__device__ __forceinline__ float weight_of(const ExpertTokenArgs& p, int choice) {
  return exists(p, __ldcg(p.experts + choice)) ? __ldcg(p.weights + choice) : 0.0f;
}

// Prefetches the beginning of what this CTA reads in the launch behind, up to so many bytes.
inline constexpr int kPrefetchedBytes = 64 << 10;
__device__ __forceinline__ void prefetch_next(const ExpertTokenArgs& p) {
  const ExpertTokenArgs::Next& next = p.next;
  if (next.table == nullptr || static_cast<int>(blockIdx.x) >= next.ctas) return;
  const int items = (next.n_tiles + next.item_n_tiles - 1) / next.item_n_tiles;
  const int first = static_cast<int>(blockIdx.x) * items / next.ctas * next.item_n_tiles;
  const int count = min(next.item_n_tiles, next.n_tiles - first);
  const std::int64_t most = kPrefetchedBytes / (p.k * count) / 16 * 16;
  for (int i = lane_index(); i < p.k * count; i += 32) {
    const CodeMatrixView& m = next.table[expert_of(p, i / count)].view;
    const int n_tile = first + i % count;
    const std::int64_t scales = scale_stride(m.kind, m.groups);
    prefetch_l2(m.codes + n_tile * m.n_tile_bytes, static_cast<int>(min(m.n_tile_bytes, most)));
    prefetch_l2(m.scales + n_tile * scales, static_cast<int>(scales));
  }
}

// The sums of all warps of a CTA, in shared memory, and what is made of them: warp `part` of
// `group` has the sums of its k_blocks of NTiles n_tiles.
template <int NTiles, bool kSums>
class ItemEpilogue {
 public:
  __device__ __forceinline__ ItemEpilogue(const ExpertTokenArgs& p, float* partials, int group,
                                          int part)
      : p_(p), partials_(partials), group_(group), part_(part) {}

  // The sums of matrix m of warp `part` of this group.
  __device__ __forceinline__ float* slot(int part, int m) const {
    return partials_ + ((part * p_.item_groups + group_) * p_.count + m) * kSlotFloats;
  }

  // Adds the sums of all parts, and stores the results.
  __device__ __forceinline__ void store(const Item& item) const {
    const int n_tiles = min(NTiles, item.n_tiles - group_ * NTiles);
    for (int e = part_ * 32 + lane_index(); e < n_tiles * kNTileColumns; e += 32 * p_.parts) {
      const int column = (item.first_n_tile + group_ * NTiles) * kNTileColumns + e;
      if (column >= p_.out) continue;
      if constexpr (kSums) {
        p_.to[column] += summed(e, column);
      } else {
        p_.to[item.choice * p_.to_stride + column] = result(item.choice, e, column);
      }
    }
  }

 private:
  static constexpr int kSlotFloats = NTiles * kNTileColumns;

  // Element e of [n_tiles][16]: the sum of all parts, in their order.
  __device__ __forceinline__ float sum_of(int m, int e) const {
    const float* at = slot(0, m) + e;
    const int stride = p_.item_groups * p_.count * kSlotFloats;
    float sum = 0.0f;
    for (int part = 0; part < p_.parts; ++part) sum += at[part * stride];
    return sum;
  }

  __device__ __forceinline__ float bias_of(int m, int choice, int column) const {
    const float* bias = p_.matrices[m].table[expert_of(p_, choice)].bias;
    return bias == nullptr ? 0.0f : bias[p_.matrices[m].first_n_tile * kNTileColumns + column];
  }

  __device__ __forceinline__ float summed(int e, int column) const {
    float sum = sum_of(0, e);
    for (int j = 0; p_.has_bias && j < p_.k; ++j) {
      if (!exists(p_, __ldcg(p_.experts + j))) continue;
      sum += (p_.weigh ? weight_of(p_, j) : 1.0f) * bias_of(0, j, column);
    }
    return sum;
  }

  __device__ __forceinline__ float result(int choice, int e, int column) const {
    const float value = sum_of(0, e) + (p_.has_bias ? bias_of(0, choice, column) : 0.0f);
    if (!p_.activates) return value;
    if (p_.count < 2) return activated(p_.activation, value, 0.0f, false);
    const float up = sum_of(1, e) + (p_.has_bias ? bias_of(1, choice, column) : 0.0f);
    return activated(p_.activation, value, up, true);
  }

  const ExpertTokenArgs& p_;
  float* partials_;
  int group_;
  int part_;
};

#endif

}  // namespace bl::cuda
