#include "backend/cuda/moe/expert_token_warps.h"

#include "backend/cuda/device/async_copy.cuh"
#include "backend/cuda/device/cache_policy.cuh"
#include "backend/cuda/moe/expert_token_items.cuh"
#include "backend/cuda/moe/own_code_rooms.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = kConsumerThreads + 32;  // the last warp prefetches

// Codes that a CTA copies itself: its shared memory holds them once or twice.
constexpr std::int64_t kMostOwnBytes = 400 << 10;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The k_blocks that a warp multiplies in an item: lane i has the i-th one, counted through all
// matrices (gate, up) or through all experts (down). While the constructor runs, lane s reads the
// view of the s-th matrix or expert for all lanes.
class OwnKBlocks {
 public:
  __device__ __forceinline__ OwnKBlocks(const ExpertTokenArgs& p, const Item& item, int warp)
      : p_(p), choice_(item.choice), n_tiles_(item.n_tiles) {
    const int walks = p.sums ? p.k : p.count;
    const int lane = lane_index();
    const int own = min(lane, walks - 1);
    const bool second = !p.sums && own == 1;
    const ExpertTokenArgs::Matrix& matrix = p.matrices[second ? 1 : 0];
    const CodeMatrixView& m = matrix.table[expert_of(p, p.sums ? own : item.choice)].view;
    const std::int64_t n_tile = matrix.first_n_tile + item.first_n_tile;
    const auto n_tile_bytes = static_cast<int>(m.n_tile_bytes);
    const auto stride = static_cast<int>(scale_stride(p.kind, m.groups));
    const auto codes = reinterpret_cast<std::uint64_t>(m.codes + n_tile * n_tile_bytes);
    const auto scales = reinterpret_cast<std::uint64_t>(m.scales + n_tile * stride);
    const auto k_blocks = reinterpret_cast<std::uint64_t>(m.k_blocks);
    const int count = m.k_block_count;
    int index = warp + lane * kConsumerWarps;
    walk_ = 0;
    for (int s = 0; s < walks; ++s) {
      const int of_walk = __shfl_sync(kAllLanes, count, s);
      if (walk_ == s && index >= of_walk) {
        index -= of_walk;
        ++walk_;
      }
    }
    const bool exists = walk_ < walks;
    count_ = __popc(__ballot_sync(kAllLanes, exists));
    const int from = min(walk_, walks - 1);
    const auto table =
        reinterpret_cast<const uint4*>(__shfl_sync(kAllLanes, k_blocks, from)) + index;
    codes_ = __shfl_sync(kAllLanes, codes, from);
    scales_ = __shfl_sync(kAllLanes, scales, from);
    n_tile_bytes_ = __shfl_sync(kAllLanes, n_tile_bytes, from);
    scale_stride_ = __shfl_sync(kAllLanes, stride, from);
    if (exists) *reinterpret_cast<uint4*>(&k_block_) = __ldg(table);
    codes_ += std::uint64_t{k_block_.offset} * k_step_bytes(1);
    scales_ += k_block_.group * scale_bytes(p.kind);
    code_bytes_ = k_block_.k_steps * k_step_bytes(k_block_.bits);
    bytes_ = limbs_at(k_block_) + k_block_.k_steps * kRecordBytes;
    end_ = warp_prefix_sum(bytes_);
  }

  __device__ __forceinline__ int count() const { return count_; }
  // k_blocks of matrix `m` and those before it.
  __device__ __forceinline__ int count_until(int m) const {
    return min(count_, __popc(__ballot_sync(kAllLanes, walk_ <= m)));
  }

  // Starts copying the codes and scales of k_blocks from `first` on, as many as the room holds.
  __device__ __forceinline__ void copy(int first, std::byte* room, int room_bytes) {
    const int begin = __shfl_sync(kAllLanes, end_ - bytes_, first);
    const bool fits = lane_index() < count_ && end_ - begin <= room_bytes;
    copied_ = __popc(__ballot_sync(kAllLanes, fits));
    at_ = room + (end_ - bytes_ - begin);
    const std::uint64_t policy = evict_first();
#pragma unroll 1
    for (int i = first; i < copied_; ++i) {
      const auto from = reinterpret_cast<const std::byte*>(__shfl_sync(kAllLanes, codes_, i));
      const int bytes = __shfl_sync(kAllLanes, code_bytes_, i);
      const int stride = __shfl_sync(kAllLanes, n_tile_bytes_, i);
      std::byte* to = place(i);
      for (int n = 0; n < n_tiles_; ++n) {
        for (int at = lane_index() * 16; at < bytes; at += 32 * 16) {
          copy_small(to + n * bytes + at, from + n * stride + at, policy);
        }
      }
    }
    if (lane_index() < first || lane_index() >= copied_) return;
    const int bytes = scale_bytes(p_.kind);
    for (int n = 0; n < n_tiles_; ++n) {
      const std::byte* from = reinterpret_cast<const std::byte*>(scales_) + n * scale_stride_;
      const std::uint32_t to = shared_address(at_ + n_tiles_ * code_bytes_ + n * bytes);
      for (int at = 0; at < bytes; at += 8) copy_or_clear<8>(to + at, from + at, true);
    }
  }
  // Likewise the limbs of these k_blocks, which the kernel in front packs.
  __device__ __forceinline__ void copy_limbs(int first) const {
#pragma unroll 1
    for (int i = first; i < copied_; ++i) {
      const int row = p_.sums ? __shfl_sync(kAllLanes, walk_, i) : choice_;
      const KBlock own = k_block(i);
      const std::byte* from =
          p_.limbs + (std::int64_t{row} * p_.k_steps + own.first_k_step) * kRecordBytes;
      std::byte* to = place(i) + limbs_at(own);
      for (int at = lane_index() * 16; at < own.k_steps * kRecordBytes; at += 32 * 16) {
        copy_small(to + at, from + at);
      }
    }
  }
  // k_blocks before this one have been copied.
  __device__ __forceinline__ int copied() const { return copied_; }

  __device__ __forceinline__ KBlock k_block(int i) const {
    const uint4 words = *reinterpret_cast<const uint4*>(&k_block_);
    alignas(16) KBlock own;
    *reinterpret_cast<uint4*>(&own) =
        make_uint4(__shfl_sync(kAllLanes, words.x, i), __shfl_sync(kAllLanes, words.y, i),
                   __shfl_sync(kAllLanes, words.z, i), __shfl_sync(kAllLanes, words.w, i));
    return own;
  }
  // The copy of k_block i: codes of its n_tiles, their scales, limbs.
  __device__ __forceinline__ std::byte* place(int i) const {
    const auto at = __shfl_sync(kAllLanes, reinterpret_cast<std::uint64_t>(at_), i);
    return opaque_smem_ptr(reinterpret_cast<std::byte*>(at));
  }
  __device__ __forceinline__ StagedKBlock codes(int i, const KBlock& own) const {
    const std::byte* from = place(i);
    const int bytes = own.k_steps * k_step_bytes(own.bits);
    return {from, from + n_tiles_ * bytes, bytes, scale_bytes(p_.kind), n_tiles_};
  }
  // Bytes in front of the limbs in such a copy.
  __device__ __forceinline__ int limbs_at(const KBlock& own) const {
    return n_tiles_ * own.k_steps * k_step_bytes(own.bits) +
           (n_tiles_ * scale_bytes(p_.kind) + 15) / 16 * 16;
  }

 private:
  const ExpertTokenArgs& p_;
  int choice_;
  int n_tiles_;
  int count_;
  int copied_ = 0;
  // This lane's k_block: its matrix or expert, codes and scales in global memory, and its copy.
  int walk_;
  alignas(16) KBlock k_block_{};
  std::uint64_t codes_;
  std::uint64_t scales_;
  int n_tile_bytes_;
  int scale_stride_;
  int code_bytes_;
  int bytes_;
  int end_;  // bytes of all k_blocks up to this one
  std::byte* at_ = nullptr;
};

template <int NTiles, bool kExl2, bool kSums>
class WarpWithOwnCodes {
 public:
  __device__ __forceinline__ WarpWithOwnCodes(const ExpertTokenArgs& p, std::byte* memory,
                                              const RoomLayout& layout)
      : p_(p),
        room_(memory + layout.rooms_at + warp_index() * layout.room_bytes),
        room_bytes_(layout.room_bytes),
        epilogue_(p, reinterpret_cast<float*>(memory), 0, warp_index()) {}

  // The first copies of `own` have been started.
  __device__ __forceinline__ void multiply(OwnKBlocks& own) const {
    const StageShare share{0, kConsumerWarps, p_.kind, p_.zero};
    ExpertLimbReader<1> input(1);
    int next = 0;
    wait_for_own_copies();
    for (int m = 0; m < p_.count; ++m) {
      StreamTotals<NTiles, 1> totals{};
      const int end = kSums ? own.count() : own.count_until(m);
      for (; next < end; ++next) {
        if (next >= own.copied()) copy_more(own, next);
        const KBlock k_block = own.k_block(next);
        const StagedKBlock codes = own.codes(next, k_block);
        input.open(codes.codes + own.limbs_at(k_block));
        multiply_k_block<kExl2>(share, k_block, codes, input, totals);
      }
      totals.keep(1, epilogue_.slot(warp_index(), m));
    }
  }
  __device__ __forceinline__ void start(OwnKBlocks& own) const { own.copy(0, room_, room_bytes_); }
  __device__ __forceinline__ void store(const Item& item) const { epilogue_.store(item); }

 private:
  __device__ __forceinline__ void copy_more(OwnKBlocks& own, int first) const {
    __syncwarp();  // the k_blocks before have been read
    own.copy(first, room_, room_bytes_);
    own.copy_limbs(first);
    wait_for_own_copies();
  }
  __device__ __forceinline__ static void wait_for_own_copies() {
    commit_copies();
    wait_copies<0>();
    __syncwarp();
  }

  const ExpertTokenArgs& p_;
  std::byte* room_;
  int room_bytes_;
  ItemEpilogue<NTiles, kSums> epilogue_;
};

#endif

// The choices are read before pdl_wait(): the kernel in front triggers only after its own wait
// (expert_limbs.cu). All but the limbs has been asked for when the wait ends.
template <int NTiles, bool kExl2, bool kSums>
__global__ void __launch_bounds__(kThreads, 1)
    expert_token_warps_kernel(const __grid_constant__ ExpertTokenArgs p,
                              const __grid_constant__ RoomLayout layout) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte shared[];
  pdl_trigger();
  std::byte* memory = opaque_smem_ptr(shared);
  if (warp_index() == kConsumerWarps) return prefetch_next(p);
  const WarpWithOwnCodes<NTiles, kExl2, kSums> warp(p, memory, layout);
  bool waited = false;
  for (Items items(p); items.at < items.end; ++items.at) {
    const Item item(p, items.at);
    OwnKBlocks own(p, item, warp_index());
    warp.start(own);
    if (!waited) pdl_wait();
    waited = true;
    own.copy_limbs(0);
    warp.multiply(own);
    consumer_sync();
    warp.store(item);
    if (items.at + 1 < items.end) consumer_sync();  // the sums have been read
  }
#endif
}

template <int NTiles, bool kExl2, bool kSums>
void start(ExecContext& ctx, const ExpertTokenArgs& args) {
  const std::size_t all = cuda_device(ctx).facts().shared_bytes_per_cta;
  const auto bytes = static_cast<int>(all) - kReservedRoomBytes;
  const std::optional<RoomLayout> layout = lay_out_rooms(all, args.count, NTiles);
  BL_CHECK(layout.has_value());  // plan_own_codes()
  const auto kernel = expert_token_warps_kernel<NTiles, kExl2, kSums>;
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  launch(shape_of(ctx, dim3(static_cast<unsigned>(args.ctas)), kThreads,
                  static_cast<std::size_t>(bytes)),
         kernel, args, *layout);
}

template <bool kExl2>
void start(ExecContext& ctx, const ExpertTokenArgs& args) {
  const bool wide = args.item_n_tiles > 1;
  if (args.sums) {
    wide ? start<3, kExl2, true>(ctx, args) : start<1, kExl2, true>(ctx, args);
  } else {
    wide ? start<3, kExl2, false>(ctx, args) : start<1, kExl2, false>(ctx, args);
  }
}

}  // namespace

bool plan_own_codes(const DeviceFacts& facts, ExpertTokenArgs& args) {
  const int walks = args.sums ? args.k : args.count;
  if (walks * args.k_blocks > kConsumerWarps * 32) return false;  // a lane has one k_block
  args.item_groups = 1;
  args.parts = kConsumerWarps;
  for (const int n_tiles : {1, 3}) {
    args.item_n_tiles = n_tiles;
    const int items = items_of(args);
    const std::int64_t k_step_codes = args.matrices[0].copy_block_bytes / kMaxCopyBlockSteps;
    const std::int64_t bytes = walks * args.k_steps * n_tiles * k_step_codes;
    if (items > facts.multiprocessors || bytes > kMostOwnBytes) continue;
    if (!lay_out_rooms(facts.shared_bytes_per_cta, args.count, n_tiles)) continue;
    args.ctas = items;
    args.own_codes = true;
    return true;
  }
  return false;
}

void expert_token_warps(ExecContext& ctx, const ExpertTokenArgs& args) {
  if (args.kind == ScaleKind::kExl2) {
    start<true>(ctx, args);
  } else {
    start<false>(ctx, args);
  }
}

}  // namespace bl::cuda
