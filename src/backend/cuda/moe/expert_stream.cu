#include "backend/cuda/moe/expert_stream.h"

#include <algorithm>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"
#include "backend/cuda/moe/expert_views.cuh"
#include "backend/cuda/moe/item_shape.h"
#include "backend/cuda/moe/stage_mma.cuh"

namespace bl::cuda {
namespace {

constexpr int kThreads = kConsumerThreads + 32;

BL_HD constexpr int groups_of(const ExpertStreamArgs& p) {
  return (n_tiles_of(p.out) + p.item_n_tiles - 1) / p.item_n_tiles;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// An item of a CTA.
struct Item {
  int expert = -1;  // −1: there are no more items
  int live = 0;
  int block = 0;
  int first_row = 0;
  int first_n_tile = 0;
  int n_tiles = 0;
};

// Walks over the items of a CTA, which are adjacent: mostly groups of n_tiles of one block. The
// expert of the next item is loaded before it is needed, so that nobody waits for it.
class ItemWalk {
 public:
  __device__ __forceinline__ explicit ItemWalk(const ExpertStreamArgs& p) : groups_(groups_of(p)) {
    const int items = __ldcg(p.rows.live_blocks) * groups_;
    const auto ctas = static_cast<int>(gridDim.x);
    const auto cta = static_cast<int>(blockIdx.x);
    const int first = cta * items / ctas;
    left_ = (cta + 1) * items / ctas - first;
    block_ = first / groups_;
    group_ = first % groups_;
    load(p);
  }
  // Returns the item whose expert was loaded, and loads the next one.
  __device__ __forceinline__ Item next(const ExpertStreamArgs& p) {
    Item item;
    if (left_ == 0) return item;
    item.expert = expert_;
    item.live = live_;
    item.block = block_;
    item.first_row = block_ * p.rows.block_rows;
    item.first_n_tile = group_ * p.item_n_tiles;
    item.n_tiles = min(p.item_n_tiles, n_tiles_of(p.out) - item.first_n_tile);
    --left_;
    if (++group_ == groups_) {
      group_ = 0;
      ++block_;
      load(p);
    }
    return item;
  }

 private:
  __device__ __forceinline__ void load(const ExpertStreamArgs& p) {
    if (left_ == 0) return;
    expert_ = __ldcg(p.rows.expert_of_block + block_);
    live_ = __ldcg(p.rows.rows_of_block + block_);
  }

  int groups_;
  int left_;
  int block_;
  int group_;
  int expert_ = -1;
  int live_ = 0;
};

// The producer warp: copies everything that the CTA's items read. `args` is in shared memory. The
// views of an item's matrices are loaded while the item before is copied.
class ItemProducer {
 public:
  __device__ __forceinline__ ItemProducer(const ExpertStreamArgs& p, PackedGemmArgs& args)
      : p_(p), args_(args) {}

  __device__ __forceinline__ void run(SmemPipeline<true>& pipeline) {
    ItemWalk walk(p_);
    Item next = walk.next(p_);
    if (next.expert >= 0) views_.load(p_, next.expert);
    while (next.expert >= 0) {
      const Item item = next;
      views_.store(p_, args_);
      point_at_limbs(item);
      pipeline.set_input(limb_record_bytes(item.live));
      next = walk.next(p_);
      if (next.expert >= 0) views_.load(p_, next.expert);
      pipeline.produce(args_, CopyBlockWalk(args_, item.first_n_tile,
                                            item.first_n_tile + item.n_tiles, p_.item_n_tiles));
    }
  }

 private:
  __device__ __forceinline__ void point_at_limbs(const Item& item) {
    if (lane_index() < p_.count) {
      args_.matrices[lane_index()].fragments = reinterpret_cast<const std::uint32_t*>(
          p_.matrices[lane_index()].limbs +
          item.block * limb_block_bytes(p_.rows.block_rows, p_.k_steps));
    }
    __syncwarp();
  }

  const ExpertStreamArgs& p_;
  PackedGemmArgs& args_;
  ExpertViews views_;
};

// A consumer warp multiplies NTiles n_tiles of an item, every parts-th k_block.
template <int NTiles, int Tiles, bool kExl2>
class StreamConsumer {
 public:
  // `partials`: shared memory for the sums of all warps.
  __device__ __forceinline__ StreamConsumer(const ExpertStreamArgs& p, const PackedGemmArgs& args,
                                            float* partials)
      : p_(p),
        args_(args),
        lane_(lane_index()),
        group_(warp_index() % p.item_groups),
        part_(warp_index() / p.item_groups),
        partials_(partials) {}

  __device__ __forceinline__ void run(SmemPipeline<true>& pipeline) {
    ItemWalk walk(p_);
    pdl_wait();
    for (Item item = walk.next(p_); item.expert >= 0; item = walk.next(p_)) {
      multiply(item, pipeline);
      if (part_ < p_.parts) store(item);
    }
  }

 private:
  // The sums of matrix m of a warp of this group.
  __device__ __forceinline__ float* slot(int part, int m) const {
    return partials_ + ((part * p_.item_groups + group_) * p_.count + m) * slot_floats();
  }
  __device__ __forceinline__ int slot_floats() const {
    return NTiles * kNTileColumns * p_.rows.block_rows;
  }

  __device__ __forceinline__ void multiply(const Item& item, SmemPipeline<true>& pipeline) {
    const bool works = group_ * NTiles < item.n_tiles && part_ < p_.parts;
    const StageShare share{group_ * NTiles, p_.parts, p_.kind, p_.zero};
    ExpertLimbReader<Tiles> input(item.live);
    pipeline.set_input(input.record_bytes());
    StageView view;
    for (int m = 0; m < p_.count; ++m) {
      StreamTotals<NTiles, Tiles> totals{};
      int k_block = part_;
      do {
        pipeline.next(args_, nullptr, view);
        if (works) multiply_stage<kExl2>(share, view, input, k_block, totals);
        pipeline.release();
      } while ((view.flags & kEndsNTiles) == 0);
      if (m == 0) sync_group();  // the sums of the item before have been read
      if (works) totals.keep(item.live, slot(part_, m));
    }
    sync_group();
  }

  // A barrier of the warps of this group.
  __device__ __forceinline__ void sync_group() const {
    if (part_ >= p_.parts) return;
    group_barrier(group_, p_.parts);
  }

  // Element e of [n_tiles][live rows][16]: the sum of all parts, in their order.
  __device__ __forceinline__ float sum_of(int m, int e) const {
    const float* at = slot(0, m) + e;
    const int stride = p_.item_groups * p_.count * slot_floats();
    float sum = 0.0f;
    for (int part = 0; part < p_.parts; ++part) sum += at[part * stride];
    return sum;
  }

  __device__ __forceinline__ float with_bias(float value, int m, const Item& item,
                                             int column) const {
    if (!p_.has_bias) return value;
    const float* bias = p_.matrices[m].table[item.expert].bias;
    return bias == nullptr ? value
                           : value + bias[p_.matrices[m].first_n_tile * kNTileColumns + column];
  }

  // Adds the sums of all parts, and stores the results.
  __device__ __forceinline__ void store(const Item& item) const {
    const int n_tiles = min(NTiles, item.n_tiles - group_ * NTiles);
    const int row_floats = item.live * kNTileColumns;
#pragma unroll
    for (int i = 0; i < NTiles; ++i) {
      if (i >= n_tiles) break;
      const int first_column = (item.first_n_tile + group_ * NTiles + i) * kNTileColumns;
      for (int e = part_ * 32 + lane_; e < row_floats; e += 32 * p_.parts) {
        const int column = first_column + e % kNTileColumns;
        if (column >= p_.out) continue;
        p_.to[(item.first_row + e / kNTileColumns) * p_.to_stride + column] =
            result(item, i * row_floats + e, column);
      }
    }
  }

  __device__ __forceinline__ float result(const Item& item, int e, int column) const {
    const float value = with_bias(sum_of(0, e), 0, item, column);
    if (!p_.activates) return value;
    const bool gated = p_.count == 2;
    const float up = gated ? with_bias(sum_of(1, e), 1, item, column) : 0.0f;
    return activated(p_.activation, value, up, gated);
  }

  const ExpertStreamArgs& p_;
  const PackedGemmArgs& args_;
  int lane_;
  int group_;  // of NTiles n_tiles of an item
  int part_;
  float* partials_;
};

#endif

// Reads the sorted choices before pdl_wait(): the kernel in front triggers only after its own wait
// (expert_limbs.cu). Shared memory: barriers, partial sums, the pipeline.
template <int NTiles, int Tiles, bool kExl2>
__global__ void __launch_bounds__(kThreads, 1)
    expert_stream_kernel(const __grid_constant__ ExpertStreamArgs p,
                         const __grid_constant__ PipelineShape shape,
                         const __grid_constant__ int partial_bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ __align__(16) std::byte args_bytes[sizeof(PackedGemmArgs)];
  pdl_trigger();
  std::byte* memory = opaque_smem_ptr(shared);
  SmemPipeline<true> pipeline(shape, memory + kBarrierBytes + partial_bytes,
                              reinterpret_cast<std::uint64_t*>(memory));
  auto& args = *reinterpret_cast<PackedGemmArgs*>(args_bytes);
  if (threadIdx.x == 0) {
    pipeline.init();
    prepare_views(args, p.count);
  }
  __syncthreads();
  if (threadIdx.x >= kConsumerThreads) {
    ItemProducer(p, args).run(pipeline);
    pdl_wait();
    return;
  }
  StreamConsumer<NTiles, Tiles, kExl2>(p, args, reinterpret_cast<float*>(memory + kBarrierBytes))
      .run(pipeline);
#endif
}

template <int NTiles, int Tiles, bool kExl2>
void start(ExecContext& ctx, const ExpertStreamArgs& args) {
  const DeviceFacts& facts = cuda_device(ctx).facts();
  PipelineShape shape;
  shape.input_bytes = limb_record_bytes(args.rows.block_rows);
  shape.most_joined = args.rows.block_rows == kStreamBlocks[0] ? kMostJoinedCopyBlocks : 1;
  shape.early_stages = kMaxStages;
  for (int i = 0; i < args.count; ++i) {
    shape.make_room(args.matrices[i].copy_block_bytes, args.matrices[i].copy_block_scale_bytes);
  }
  const int partial_bytes = kConsumerWarps * args.count * NTiles * args.rows.block_rows *
                            kNTileColumns * static_cast<int>(sizeof(float));
  const int bytes = static_cast<int>(facts.shared_bytes_per_cta) - kReservedItemBytes;
  shape.fill(bytes - kBarrierBytes - partial_bytes,
             std::max(args.item_n_tiles, kMostJoinedCopyBlocks));
  const auto kernel = expert_stream_kernel<NTiles, Tiles, kExl2>;
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const std::int64_t items = std::int64_t{args.rows.blocks} * groups_of(args);
  const auto ctas = static_cast<unsigned>(std::min<std::int64_t>(items, facts.multiprocessors));
  launch(shape_of(ctx, dim3(ctas), kThreads, static_cast<std::size_t>(bytes)), kernel, args, shape,
         partial_bytes);
}

template <bool kExl2>
void start(ExecContext& ctx, const ExpertStreamArgs& args, bool wide) {
  if (args.rows.block_rows == kStreamBlocks[2]) return start<1, 4, kExl2>(ctx, args);
  if (args.rows.block_rows == kStreamBlocks[1]) {
    return wide ? start<3, 2, kExl2>(ctx, args) : start<1, 2, kExl2>(ctx, args);
  }
  return wide ? start<3, 1, kExl2>(ctx, args) : start<1, 1, kExl2>(ctx, args);
}

}  // namespace

void expert_stream_gemm(ExecContext& ctx, const ExpertStreamArgs& args) {
  const ItemWork work{.walks = args.count,
                      .k_steps = args.k_steps,
                      .k_blocks = args.k_blocks,
                      .rows = args.rows.blocks,
                      .n_tiles = n_tiles_of(args.out)};
  // Large blocks leave registers and shared memory for the sums of one n_tile a warp.
  const bool large = args.rows.block_rows == kStreamBlocks[2];
  const ItemShape shape = choose_item_shape(work, cuda_device(ctx).facts().multiprocessors, !large);
  ExpertStreamArgs with = args;
  with.item_n_tiles = shape.n_tiles();
  with.item_groups = shape.groups;
  with.parts = shape.parts();
  const bool wide = shape.warp_n_tiles > 1;
  if (args.kind == ScaleKind::kExl2) {
    start<true>(ctx, with, wide);
  } else {
    start<false>(ctx, with, wide);
  }
}

}  // namespace bl::cuda
