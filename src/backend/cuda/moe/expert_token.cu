#include "backend/cuda/moe/expert_token.h"

#include <algorithm>

#include "backend/cuda/moe/expert_token_items.cuh"
#include "backend/cuda/moe/expert_token_warps.h"
#include "backend/cuda/moe/expert_views.cuh"
#include "backend/cuda/moe/item_shape.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = kConsumerThreads + 32;
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
        epilogue_(p, partials, group_, part_) {}

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
      if (part_ < p_.parts) epilogue_.store(item);
    }
  }

 private:
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
      if (works) totals.keep(1, epilogue_.slot(part_, m));
    }
    sync_group();
  }

  // A barrier of the warps of this group.
  __device__ __forceinline__ void sync_group() const {
    if (part_ >= p_.parts) return;
    group_barrier(group_, p_.parts);
  }

  const ExpertTokenArgs& p_;
  const PackedGemmArgs& args_;
  int group_;  // of NTiles n_tiles of an item
  int part_;
  std::byte* limbs_;
  ItemEpilogue<NTiles, kSums> epilogue_;
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
  const int bytes = static_cast<int>(facts.shared_bytes_per_cta) - kReservedItemBytes;
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
  if (plan_own_codes(facts, args)) return;
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
  BL_CHECK((args.sums || args.own_codes) == (args.limbs != nullptr));
  if (args.own_codes) return expert_token_warps(ctx, args);
  if (args.kind == ScaleKind::kExl2) {
    start<true>(ctx, args);
  } else {
    start<false>(ctx, args);
  }
}

}  // namespace bl::cuda
