#include "backend/cuda/moe/expert_stream.h"

#include <algorithm>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"
#include "backend/cuda/gemm/skinny/copy_block_mma.cuh"

namespace bl::cuda {
namespace {

constexpr int kBarrierBytes = 128;
static_assert(2 * kMaxStages * sizeof(std::uint64_t) <= kBarrierBytes);
constexpr int kThreads = kConsumerThreads + 32;

BL_HD constexpr int n_tiles_of(int out) { return (out + kNTileColumns - 1) / kNTileColumns; }
BL_HD constexpr int groups_of(const ExpertStreamArgs& p) {
  return (n_tiles_of(p.out) + p.item_n_tiles - 1) / p.item_n_tiles;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Scales of experts that all have codes of one kind, which is uniform in a launch.
struct UniformScales {
  ExlScales exl2;
  GptqScales gptq;
  __device__ __forceinline__ UniformScales(const ExpertStreamArgs& p, const KBlock& k_block,
                                           int lane, float factor)
      : exl2(CodeMatrixView{}, k_block, lane, factor),
        gptq(p.kind, static_cast<float>(p.zero), factor) {}
  __device__ __forceinline__ LaneScales of(const std::byte* scales, int lane) const {
    return gptq.kind == ScaleKind::kExl2 ? exl2.of(scales, lane) : gptq.of(scales, lane);
  }
};

// An item of a CTA. Blocks in use come first, so the first item without an expert ends the walk.
struct Item {
  int expert = -1;
  int live = 0;
  int first_row = 0;
  int first_n_tile = 0;
  int n_tiles = 0;

  __device__ __forceinline__ void load(const ExpertStreamArgs& p, int number) {
    const int groups = groups_of(p);
    const int block = number / groups;
    expert = -1;
    if (block >= p.rows.blocks) return;
    if (p.rows.one_token) {
      const int chosen = __ldcg(p.rows.experts + block);
      live = exists(p.rows, chosen) ? 1 : 0;
      expert = live > 0 ? chosen : 0;
    } else {
      expert = __ldcg(p.rows.expert_of_block + block);
      live = __ldcg(p.rows.rows_of_block + block);
    }
    first_row = block * p.rows.block_rows;
    first_n_tile = number % groups * p.item_n_tiles;
    n_tiles = min(p.item_n_tiles, n_tiles_of(p.out) - first_n_tile);
  }
};

// The producer warp: copies everything that the CTA's items read. `args` is in shared memory. The
// views of an item's matrices are loaded while the item before is copied.
class ItemProducer {
 public:
  __device__ __forceinline__ ItemProducer(const ExpertStreamArgs& p, PackedGemmArgs& args)
      : p_(p), args_(args) {}

  __device__ __forceinline__ void run(SmemPipeline<false>& pipeline) {
    const auto step = static_cast<int>(gridDim.x);
    auto number = static_cast<int>(blockIdx.x);
    Item next;
    next.load(p_, number);
    load_views(next);
    Item after;
    after.load(p_, number + step);
    while (next.expert >= 0) {
      const Item item = next;
      store_views();
      next = after;
      load_views(next);
      number += step;
      after.load(p_, number + step);
      pipeline.produce(args_, CopyBlockWalk(args_, item.first_n_tile,
                                            item.first_n_tile + item.n_tiles, p_.item_n_tiles));
    }
  }

 private:
  static constexpr int kWords = sizeof(CodeMatrixView) / sizeof(uint2);
  static_assert(sizeof(CodeMatrixView) % sizeof(uint2) == 0 && kWords <= 32);

  __device__ __forceinline__ void load_views(const Item& item) {
    if (item.expert < 0 || lane_index() >= kWords) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= p_.count) break;
      words_[i] = __ldg(reinterpret_cast<const uint2*>(&p_.matrices[i].table[item.expert].view) +
                        lane_index());
    }
  }
  __device__ __forceinline__ void store_views() {
    __syncwarp();  // the item before has been issued
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i >= p_.count) break;
      CodeMatrixView& m = args_.matrices[i].view;
      if (lane_index() < kWords) reinterpret_cast<uint2*>(&m)[lane_index()] = words_[i];
      __syncwarp();
      const std::int64_t before = p_.matrices[i].first_n_tile;
      if (lane_index() == 0 && before > 0) {  // n_tiles count from the first of this result
        m.codes += before * m.n_tile_bytes;
        m.scales += before * scale_stride(m.kind, m.groups);
        m.n_tiles -= p_.matrices[i].first_n_tile;
      }
    }
    __syncwarp();
  }

  const ExpertStreamArgs& p_;
  PackedGemmArgs& args_;
  uint2 words_[2]{};
};

// A consumer warp multiplies NTiles n_tiles of an item, every parts-th k_block.
template <int NTiles, int TokenTiles>
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

  __device__ __forceinline__ void run(SmemPipeline<false>& pipeline) {
    Item next;
    auto number = static_cast<int>(blockIdx.x);
    next.load(p_, number);
    pdl_wait();
    while (next.expert >= 0) {
      const Item item = next;
      number += static_cast<int>(gridDim.x);
      next.load(p_, number);
      multiply(item, pipeline);
      if (part_ < p_.parts) store(item);
    }
  }

 private:
  static constexpr int kSlotFloats = NTiles * TokenTiles * kTokenTile * kNTileColumns;

  // The sums of matrix m of a warp of this group.
  __device__ __forceinline__ float* slot(int part, int m) const {
    return partials_ + ((part * p_.item_groups + group_) * p_.count + m) * kSlotFloats;
  }

  __device__ __forceinline__ void multiply(const Item& item, SmemPipeline<false>& pipeline) {
    const int token_bytes = p_.k_steps * kFragmentBytes;
    const bool works = group_ * NTiles < item.n_tiles && part_ < p_.parts;
    StageView view;
    for (int m = 0; m < p_.count; ++m) {
      Sums<NTiles, TokenTiles> totals;
      totals.clear();
      InputReader<TokenTiles> input;
      input.open(reinterpret_cast<const std::byte*>(p_.matrices[m].fragments) +
                     std::int64_t{item.first_row} * token_bytes,
                 kFragmentBytes, token_bytes, item.live);
      int k_block = part_;
      do {
        pipeline.next(args_, nullptr, view);
        if (works) multiply_k_blocks(view, input, k_block, totals);
        pipeline.release();
      } while ((view.flags & kEndsNTiles) == 0);
      if (m == 0) sync_group();  // the sums of the item before have been read
      if (works) keep_sums(totals, item.live, slot(part_, m));
    }
    sync_group();
  }

  // totals += this warp's k_blocks of a stage; `next` counts from the stage's first.
  __device__ __forceinline__ void multiply_k_blocks(const StageView& view,
                                                    const InputReader<TokenTiles>& input, int& next,
                                                    Sums<NTiles, TokenTiles>& totals) {
    const int first = group_ * NTiles;
    const int n_tiles = min(NTiles, view.n_tiles - first);
    const std::byte* codes = view.codes + first * view.code_stride;
    const std::byte* scales = view.scales + first * view.scale_stride;
    for (; next < view.k_blocks; next += p_.parts) {
      KBlock k_block;
      *reinterpret_cast<uint4*>(&k_block) = view.k_block_words[next];
      KBlockSums<NTiles, TokenTiles> sums;
      multiply_k_block<kAllWidths>(
          k_block, {codes + k_block.offset * k_step_bytes(1), view.code_stride, n_tiles}, input,
          sums);
      const UniformScales of_group(p_, k_block, lane_, 1.0f / kCodeOne);
      const std::byte* at = scales + k_block.group * scale_bytes(p_.kind);
#pragma unroll
      for (int i = 0; i < NTiles; ++i) {
        apply_scales(of_group.of(at + min(i, n_tiles - 1) * view.scale_stride, lane_), i, sums,
                     totals);
      }
    }
    next -= view.k_blocks;
  }

  // A barrier of the warps of this group.
  __device__ __forceinline__ void sync_group() const {
    if (part_ >= p_.parts) return;
    asm volatile("bar.sync %0, %1;" ::"r"(2 + group_), "r"(32 * p_.parts) : "memory");
  }

  // Element e of [n_tiles][live rows][16]: the sum of all parts, in their order.
  __device__ __forceinline__ float sum_of(int m, int e) const {
    const float* at = slot(0, m) + e;
    const int stride = p_.item_groups * p_.count * kSlotFloats;
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
    for (int e = part_ * 32 + lane_; e < n_tiles * row_floats; e += 32 * p_.parts) {
      const int n_tile = e / row_floats;
      const int row = item.first_row + e % row_floats / kNTileColumns;
      const int column =
          (item.first_n_tile + group_ * NTiles + n_tile) * kNTileColumns + e % kNTileColumns;
      const float value = column < p_.out ? result(item, e, row, column) : 0.0f;
      if (column < p_.out) p_.to[row * p_.to_stride + column] = value;
      if (p_.row_largest != nullptr) raise_largest(row, fabsf(value));
    }
  }

  __device__ __forceinline__ float result(const Item& item, int e, int row, int column) const {
    const float scale = p_.row_scales[row];
    const float value = with_bias(sum_of(0, e) * scale, 0, item, column);
    if (!p_.activates) return value;
    const bool gated = p_.count == 2;
    const float up = gated ? with_bias(sum_of(1, e) * scale, 1, item, column) : 0.0f;
    return activated(p_.activation, value, up, gated);
  }

  // Sixteen lanes have the columns of a row, and come here together.
  __device__ __forceinline__ void raise_largest(int row, float value) const {
    const unsigned lanes = 0xffffu << (lane_ & 16);
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2) {
      value = fmaxf(value, __shfl_xor_sync(lanes, value, distance));
    }
    if (lane_ % 16 == 0) atomicMax(p_.row_largest + row, __float_as_uint(value));
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
// (expert_prepare.cu). Shared memory: barriers, partial sums, the pipeline.
template <int NTiles, int TokenTiles>
__global__ void __launch_bounds__(kThreads, 1)
    expert_stream_kernel(const __grid_constant__ ExpertStreamArgs p,
                         const __grid_constant__ PipelineShape shape,
                         const __grid_constant__ int partial_bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ __align__(16) std::byte args_bytes[sizeof(PackedGemmArgs)];
  pdl_trigger();
  SmemPipeline<false> pipeline(shape, shared + kBarrierBytes + partial_bytes,
                               reinterpret_cast<std::uint64_t*>(shared));
  auto& args = *reinterpret_cast<PackedGemmArgs*>(args_bytes);
  if (threadIdx.x == 0) {
    pipeline.init();
    args.gated = p.count == 2;
    args.count = p.count;
    args.input_layout_bytes = 0;
    for (int i = 0; i < p.count; ++i) args.matrices[i].input_layout = 0;
  }
  __syncthreads();
  if (threadIdx.x >= kConsumerThreads) {
    ItemProducer(p, args).run(pipeline);
    pdl_wait();
    return;
  }
  StreamConsumer<NTiles, TokenTiles>(p, args, reinterpret_cast<float*>(shared + kBarrierBytes))
      .run(pipeline);
#endif
}

// N_tiles of a warp, and groups of them in an item.
struct ItemShape {
  int warp_n_tiles;
  int groups;
};
constexpr ItemShape kItemShapes[] = {{3, 2}, {3, 1}, {1, 5}, {1, 3}};

// Chooses the shape of items: the fewest n_tiles for the busiest CTA; the first shape if equal.
ItemShape choose_shape(const DeviceFacts& facts, ExpertStreamArgs& args) {
  std::int64_t best = 0;
  ItemShape chosen = kItemShapes[0];
  for (const ItemShape& shape : kItemShapes) {
    args.item_n_tiles = shape.warp_n_tiles * shape.groups;
    const std::int64_t items = std::int64_t{args.rows.blocks} * groups_of(args);
    const std::int64_t turns = (items + facts.multiprocessors - 1) / facts.multiprocessors;
    const std::int64_t cost = turns * args.item_n_tiles;
    if (best == 0 || cost < best) {
      best = cost;
      chosen = shape;
    }
  }
  args.item_n_tiles = chosen.warp_n_tiles * chosen.groups;
  args.item_groups = chosen.groups;
  args.parts = kConsumerWarps / chosen.groups;
  return chosen;
}

template <int NTiles, int TokenTiles>
void start(ExecContext& ctx, const ExpertStreamArgs& args) {
  const DeviceFacts& facts = cuda_device(ctx).facts();
  PipelineShape shape;
  shape.most_joined = 5;  // long stages where items are narrow
  for (int i = 0; i < args.count; ++i) {
    shape.make_room(args.matrices[i].copy_block_bytes, args.matrices[i].copy_block_scale_bytes);
  }
  const int partial_bytes = kConsumerWarps * args.count * NTiles * TokenTiles * kTokenTile *
                            kNTileColumns * static_cast<int>(sizeof(float));
  constexpr int kReserved = 3072;  // static shared memory of the CTA, and the system's
  const int bytes = static_cast<int>(facts.shared_bytes_per_cta) - kReserved;
  shape.fill(bytes - kBarrierBytes - partial_bytes, std::max(args.item_n_tiles, 5));
  BL_CUDA_CHECK(cudaFuncSetAttribute(expert_stream_kernel<NTiles, TokenTiles>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const std::int64_t items = std::int64_t{args.rows.blocks} * groups_of(args);
  const auto ctas = static_cast<unsigned>(std::min<std::int64_t>(items, facts.multiprocessors));
  launch(shape_of(ctx, dim3(ctas), kThreads, static_cast<std::size_t>(bytes)),
         expert_stream_kernel<NTiles, TokenTiles>, args, shape, partial_bytes);
}

template <int TokenTiles>
void start(ExecContext& ctx, const ExpertStreamArgs& args, const ItemShape& shape) {
  if (shape.warp_n_tiles == 3) {
    start<3, TokenTiles>(ctx, args);
  } else {
    start<1, TokenTiles>(ctx, args);
  }
}

}  // namespace

void expert_stream_gemm(ExecContext& ctx, const ExpertStreamArgs& args) {
  ExpertStreamArgs with = args;
  const ItemShape shape = choose_shape(cuda_device(ctx).facts(), with);
  if (args.rows.block_rows == kStreamBlock) {
    start<2>(ctx, with, shape);
  } else {
    start<1>(ctx, with, shape);
  }
}

}  // namespace bl::cuda
