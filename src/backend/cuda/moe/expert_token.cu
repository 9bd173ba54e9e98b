#include "backend/cuda/moe/expert_token.h"

#include <algorithm>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/moe/expert_views.cuh"
#include "backend/cuda/moe/item_shape.h"
#include "backend/cuda/moe/stage_mma.cuh"

namespace bl::cuda {
namespace {

constexpr int kBarrierBytes = 128;
static_assert(2 * kMaxStages * sizeof(std::uint64_t) <= kBarrierBytes);
constexpr int kThreads = kConsumerThreads + 32;
constexpr int kRecordBytes = limb_record_bytes(1);

BL_HD constexpr int n_tiles_of(int out) { return (out + kNTileColumns - 1) / kNTileColumns; }
BL_HD constexpr int groups_of(const ExpertTokenArgs& p) {
  return (n_tiles_of(p.out) + p.item_n_tiles - 1) / p.item_n_tiles;
}
BL_HD constexpr int items_of(const ExpertTokenArgs& p) { return groups_of(p) * (p.sums ? 1 : p.k); }
// Rows, and so experts, of an item.
BL_HD constexpr int walks_of(const ExpertTokenArgs& p) { return p.sums ? p.k : 1; }

// Where shared memory begins behind the barriers and limbs: partial sums, the pipeline.
struct SharedLayout {
  int partials_at = 0;
  int pipeline_at = 0;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Loads eight bytes, so that read-only loads that follow find them in L1.
__device__ __forceinline__ void touch(const uint2* at) {
  [[maybe_unused]] uint2 words;
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "l"(at));
}

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

// Consumer warps load the views and copy_blocks of all chosen experts, so that the producer warp,
// which needs them one behind the other, finds them in L1.
__device__ __forceinline__ void touch_tables(const ExpertTokenArgs& p) {
  const int walk = warp_index();
  if (walk >= p.k) return;
  const CodeMatrixView& m = p.matrices[0].table[expert_of(p, walk)].view;
  if (lane_index() < static_cast<int>(sizeof(CodeMatrixView) / sizeof(uint2))) {
    touch(reinterpret_cast<const uint2*>(&m) + lane_index());
  }
  const auto* copy_blocks = reinterpret_cast<const uint2*>(m.copy_blocks);
  const int count = m.copy_block_count * 2;
  for (int i = lane_index(); i < count; i += 32) touch(copy_blocks + i);
}

// The producer warp: copies everything that the CTA's items read. `args` is in shared memory.
template <bool kSums>
__device__ __forceinline__ void produce_items(const ExpertTokenArgs& p, PackedGemmArgs& args,
                                              SmemPipeline<kSums>& pipeline) {
  const int walks = kSums ? p.k : 1;
  Items items(p);
  if (items.at >= items.end) return;
  const int of_lane = expert_of(p, min(lane_index(), p.k - 1));
  const auto expert = [of_lane](int choice) { return __shfl_sync(kAllLanes, of_lane, choice); };
  ExpertViews views;
  views.load(p, expert(Item(p, items.at).choice));
  for (; items.at < items.end; ++items.at) {
    const Item item(p, items.at);
    for (int walk = 0; walk < walks; ++walk) {
      views.store(p, args);
      if (kSums && lane_index() == 0) {
        args.matrices[0].fragments = reinterpret_cast<const std::uint32_t*>(
            p.limbs + std::int64_t{walk} * p.k_steps * kRecordBytes);
      }
      __syncwarp();
      const bool last = walk + 1 == walks;
      if (!last || items.at + 1 < items.end) {
        views.load(p, expert(last ? Item(p, items.at + 1).choice : item.choice + walk + 1));
      }
      pipeline.produce(args, CopyBlockWalk(args, item.first_n_tile,
                                           item.first_n_tile + item.n_tiles, p.item_n_tiles));
    }
  }
}

// Prefetches the beginning of what this CTA reads in the launch behind, up to so many bytes.
constexpr int kPrefetchedBytes = 64 << 10;
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

// Consumer warps make limbs of the token's row for an expert: each warp some k_blocks, so many at a
// time that their loads overlap.
class LimbMaker {
 public:
  __device__ __forceinline__ LimbMaker(const ExpertTokenArgs& p, std::byte* limbs)
      : p_(p), row_(limbs, 1, 0) {}

  __device__ __forceinline__ void make(int choice) const {
    const ExpertMatrix& matrix = p_.matrices[0].table[expert_of(p_, choice)];
    const int count = matrix.view.k_block_count;
    const float weight = p_.weigh ? weight_of(p_, choice) : 1.0f;
#pragma unroll 1
    for (int first = warp_index(); first < count; first += kAtOnce * kConsumerWarps) {
      KBlock k_blocks[kAtOnce];
      int features[kAtOnce][kMaxKBlockSteps];
      float values[kAtOnce][kMaxKBlockSteps];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int index = first + i * kConsumerWarps;
        *reinterpret_cast<uint4*>(&k_blocks[i]) =
            __ldg(reinterpret_cast<const uint4*>(matrix.view.k_blocks + min(index, count - 1)));
        if (index >= count) k_blocks[i].k_steps = 0;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        load_features(matrix.feature_of_k, k_blocks[i], features[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int u = 0; u < kMaxKBlockSteps; ++u) {
          values[i][u] = features[i][u] < 0 ? 0.0f : __ldcg(p_.x + features[i][u]);
        }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (k_blocks[i].k_steps > 0) row_.store_k_block(k_blocks[i], values[i], weight);
      }
    }
  }

 private:
  static constexpr int kAtOnce = 3;
  const ExpertTokenArgs& p_;
  LimbRow row_;
};

// A consumer warp multiplies NTiles n_tiles of an item, every parts-th k_block.
template <int NTiles, bool kExl2, bool kSums>
class TokenConsumer {
 public:
  // `limbs`, `partials`: shared memory for the row of an item, and for the sums of all warps.
  __device__ __forceinline__ TokenConsumer(const ExpertTokenArgs& p, const PackedGemmArgs& args,
                                           std::byte* limbs, float* partials)
      : p_(p),
        args_(args),
        group_(warp_index() % p.item_groups),
        part_(warp_index() / p.item_groups),
        limbs_(limbs),
        partials_(partials) {}

  __device__ __forceinline__ void run(SmemPipeline<kSums>& pipeline) const {
    const LimbMaker maker(p_, limbs_);
    int choice = -1;  // whose limbs are there
    for (Items items(p_); items.at < items.end; ++items.at) {
      const Item item(p_, items.at);
      if (!kSums && item.choice != choice) {
        if (choice >= 0) consumer_sync();  // nobody reads the limbs any more
        choice = item.choice;
        maker.make(choice);
        consumer_sync();
      }
      multiply(item, pipeline);
      if (part_ < p_.parts) store(item);
    }
  }

 private:
  static constexpr int kSlotFloats = NTiles * kNTileColumns;

  // The sums of matrix m of a warp of this group.
  __device__ __forceinline__ float* slot(int part, int m) const {
    return partials_ + ((part * p_.item_groups + group_) * p_.count + m) * kSlotFloats;
  }

  __device__ __forceinline__ void multiply(const Item& item, SmemPipeline<kSums>& pipeline) const {
    const bool works = group_ * NTiles < item.n_tiles && part_ < p_.parts;
    const StageShare share{group_ * NTiles, p_.parts, p_.kind, p_.zero};
    ExpertLimbReader<1> input(1);
    StageView view;
    for (int m = 0; m < p_.count; ++m) {
      StreamTotals<NTiles, 1> totals{};
      int k_block = part_;
      for (int walk = 0; walk < (kSums ? p_.k : 1); ++walk) {
        do {
          pipeline.next(args_, limbs_, view);
          if (works) multiply_stage<kExl2>(share, view, input, k_block, totals);
          pipeline.release();
        } while ((view.flags & kEndsNTiles) == 0);
      }
      if (m == 0) sync_group();  // the sums of the item before have been read
      if (works) totals.keep(1, slot(part_, m));
    }
    sync_group();
  }

  // A barrier of the warps of this group.
  __device__ __forceinline__ void sync_group() const {
    if (part_ >= p_.parts) return;
    asm volatile("bar.sync %0, %1;" ::"r"(2 + group_), "r"(32 * p_.parts) : "memory");
  }

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
  const PackedGemmArgs& args_;
  int group_;  // of NTiles n_tiles of an item
  int part_;
  std::byte* limbs_;
  float* partials_;
};

#endif

// Down reads the choices before pdl_wait(): the kernel in front triggers only after its own wait
// (expert_limbs.cu).
template <int NTiles, bool kExl2, bool kSums>
__global__ void __launch_bounds__(kThreads, 1)
    expert_token_kernel(const __grid_constant__ ExpertTokenArgs p,
                        const __grid_constant__ PipelineShape shape,
                        const __grid_constant__ SharedLayout layout) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ __align__(16) std::byte args_bytes[sizeof(PackedGemmArgs)];
  pdl_trigger();
  std::byte* memory = opaque_smem_ptr(shared);
  SmemPipeline<kSums> pipeline(shape, memory + layout.pipeline_at,
                               reinterpret_cast<std::uint64_t*>(memory));
  auto& args = *reinterpret_cast<PackedGemmArgs*>(args_bytes);
  if (threadIdx.x == 0) {
    pipeline.init();
    prepare_views(args, p.count);
  }
  __syncthreads();
  if (threadIdx.x >= kConsumerThreads) {
    if constexpr (!kSums) pdl_wait();
    produce_items(p, args, pipeline);
    pdl_wait();
    prefetch_next(p);
    return;
  }
  if constexpr (kSums) touch_tables(p);
  pdl_wait();
  const TokenConsumer<NTiles, kExl2, kSums> consumer(
      p, args, memory + kBarrierBytes, reinterpret_cast<float*>(memory + layout.partials_at));
  consumer.run(pipeline);
#endif
}

template <int NTiles, bool kExl2, bool kSums>
void start(ExecContext& ctx, const ExpertTokenArgs& args) {
  const DeviceFacts& facts = cuda_device(ctx).facts();
  PipelineShape shape;
  shape.most_joined = kMostJoinedCopyBlocks;
  shape.early_stages = kMaxStages;
  if (kSums) shape.input_bytes = kRecordBytes;
  for (int i = 0; i < args.count; ++i) {
    shape.make_room(args.matrices[i].copy_block_bytes, args.matrices[i].copy_block_scale_bytes);
  }
  SharedLayout layout;
  layout.partials_at =
      kBarrierBytes + (kSums ? 0 : PipelineShape::rounded(args.k_steps * kRecordBytes));
  layout.pipeline_at =
      layout.partials_at + PipelineShape::rounded(kConsumerWarps * args.count * NTiles *
                                                  kNTileColumns * static_cast<int>(sizeof(float)));
  constexpr int kReserved = 3072;  // static shared memory of the CTA, and the system's
  const int bytes = static_cast<int>(facts.shared_bytes_per_cta) - kReserved;
  shape.fill(bytes - layout.pipeline_at, std::max(args.item_n_tiles, kMostJoinedCopyBlocks));
  const auto kernel = expert_token_kernel<NTiles, kExl2, kSums>;
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  launch(shape_of(ctx, dim3(static_cast<unsigned>(args.ctas)), kThreads,
                  static_cast<std::size_t>(bytes)),
         kernel, args, shape, layout);
}

template <bool kExl2>
void start(ExecContext& ctx, const ExpertTokenArgs& args) {
  const bool wide = args.item_n_tiles > args.item_groups;
  if (args.sums) {
    wide ? start<3, kExl2, true>(ctx, args) : start<1, kExl2, true>(ctx, args);
  } else {
    wide ? start<3, kExl2, false>(ctx, args) : start<1, kExl2, false>(ctx, args);
  }
}

}  // namespace

bool has_room_for_limbs(const DeviceFacts& facts, std::int64_t k_steps) {
  return k_steps * kRecordBytes <= static_cast<int>(facts.shared_bytes_per_cta) * 2 / 5;
}

void plan_expert_token(const DeviceFacts& facts, ExpertTokenArgs& args) {
  const ItemWork work{.walks = args.count * walks_of(args),
                      .k_steps = args.k_steps,
                      .k_blocks = args.k_blocks,
                      .rows = args.sums ? 1 : args.k,
                      .n_tiles = n_tiles_of(args.out)};
  const ItemShape shape = choose_item_shape(work, facts.multiprocessors, true);
  args.item_n_tiles = shape.n_tiles();
  args.item_groups = shape.groups;
  args.parts = shape.parts();
  args.ctas = std::min(items_of(args), facts.multiprocessors);
}

ExpertTokenArgs::Next next_of(const ExpertTokenArgs& args) {
  return {args.matrices[0].table, args.item_n_tiles, n_tiles_of(args.out), args.ctas};
}

void expert_token_gemv(ExecContext& ctx, const ExpertTokenArgs& args) {
  BL_CHECK(args.sums == (args.limbs != nullptr));
  if (args.kind == ScaleKind::kExl2) {
    start<true>(ctx, args);
  } else {
    start<false>(ctx, args);
  }
}

}  // namespace bl::cuda
