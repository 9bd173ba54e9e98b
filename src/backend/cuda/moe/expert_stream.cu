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

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

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
    expert = __ldcg(p.rows.expert_of_block + block);
    live = __ldcg(p.rows.rows_of_block + block);
    first_row = block * p.rows.block_rows;
    first_n_tile = number % groups * p.item_n_tiles;
    n_tiles = min(p.item_n_tiles, n_tiles_of(p.out) - first_n_tile);
  }
};

// The producer warp: copies everything that the CTA's items read. `args` is in shared memory.
__device__ __forceinline__ void produce_items(const ExpertStreamArgs& p, PackedGemmArgs& args,
                                              SmemPipeline<false>& pipeline) {
  constexpr int kWords = sizeof(CodeMatrixView) / sizeof(uint2);
  static_assert(sizeof(CodeMatrixView) % sizeof(uint2) == 0 && kWords <= 32);
  Item item;
  for (auto number = static_cast<int>(blockIdx.x);; number += static_cast<int>(gridDim.x)) {
    item.load(p, number);
    if (item.expert < 0) return;
    __syncwarp();  // the item before has been issued
    for (int i = 0; i < p.count; ++i) {
      const auto* from = reinterpret_cast<const uint2*>(&p.matrices[i].table[item.expert].view);
      auto* to = reinterpret_cast<uint2*>(&args.matrices[i].view);
      if (lane_index() < kWords) to[lane_index()] = __ldg(from + lane_index());
    }
    __syncwarp();
    for (int i = 0; i < p.count; ++i) {
      if (lane_index() != 0) break;
      // Counted from the first n_tile of this result.
      CodeMatrixView& m = args.matrices[i].view;
      const std::int64_t before = p.matrices[i].first_n_tile;
      m.codes += before * m.n_tile_bytes;
      m.scales += before * scale_stride(m.kind, m.groups);
      m.n_tiles -= p.matrices[i].first_n_tile;
    }
    __syncwarp();
    pipeline.produce(args, CopyBlockWalk(args, item.first_n_tile, item.first_n_tile + item.n_tiles,
                                         p.item_n_tiles));
  }
}

template <int TokenTiles>
class StreamConsumer {
 public:
  // `partials`: shared memory for the sums of all parts but the first.
  __device__ __forceinline__ StreamConsumer(const ExpertStreamArgs& p, const PackedGemmArgs& args,
                                            float4* partials)
      : p_(p),
        args_(args),
        lane_(lane_index()),
        n_tile_(warp_index() % p.item_n_tiles),
        part_(warp_index() / p.item_n_tiles),
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
      finish(item);
    }
  }

 private:
  __device__ __forceinline__ void multiply(const Item& item, SmemPipeline<false>& pipeline) {
    const int token_bytes = p_.k_steps * kFragmentBytes;
    StageView view;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      totals_[m].clear();
      if (m >= p_.count) break;
      InputReader<TokenTiles> input;
      input.open(reinterpret_cast<const std::byte*>(p_.matrices[m].fragments) +
                     std::int64_t{item.first_row} * token_bytes,
                 kFragmentBytes, token_bytes, item.live);
      int k_block = part_;
      do {
        pipeline.next(args_, nullptr, view);
        if (n_tile_ < view.n_tiles && part_ < p_.parts) {
          multiply_k_blocks(view, input, k_block, totals_[m]);
        }
        pipeline.release();
      } while ((view.flags & kEndsNTiles) == 0);
    }
  }

  // totals += this warp's k_blocks of a stage; `next` counts from the stage's first.
  __device__ __forceinline__ void multiply_k_blocks(const StageView& view,
                                                    const InputReader<TokenTiles>& input, int& next,
                                                    Sums<1, TokenTiles>& totals) {
    const std::byte* codes = view.codes + n_tile_ * view.code_stride;
    const std::byte* scales = view.scales + n_tile_ * view.scale_stride;
    for (; next < view.k_blocks; next += p_.parts) {
      KBlock k_block;
      *reinterpret_cast<uint4*>(&k_block) = view.k_block_words[next];
      KBlockSums<1, TokenTiles> sums;
      multiply_k_block<kAllWidths>(k_block, {codes + k_block.offset * k_step_bytes(1), 0, 1}, input,
                                   sums);
      const UniformScales of_group(p_, k_block, lane_, 1.0f / kCodeOne);
      apply_scales(of_group.of(scales + k_block.group * scale_bytes(p_.kind), lane_), 0, sums,
                   totals);
    }
    next -= view.k_blocks;
  }

  // A barrier of the warps of this n_tile.
  __device__ __forceinline__ void sync_parts() const {
    asm volatile("bar.sync %0, %1;" ::"r"(2 + n_tile_), "r"(32 * p_.parts) : "memory");
  }

  // Adds the sums of all parts, and stores the results.
  __device__ __forceinline__ void finish(const Item& item) {
    if (part_ >= p_.parts) return;
    const auto slot = [&](int part, int m, int n) -> float4& {
      return partials_[(((part - 1) * p_.item_n_tiles + n_tile_) * p_.count + m) * TokenTiles * 32 +
                       n * 32 + lane_];
    };
    if (part_ > 0) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        if (m >= p_.count) break;
#pragma unroll
        for (int n = 0; n < TokenTiles; ++n) {
          const float(&at)[4] = totals_[m].at[0][n];
          slot(part_, m, n) = {at[0], at[1], at[2], at[3]};
        }
      }
    }
    sync_parts();
    if (part_ == 0) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        if (m >= p_.count) break;
#pragma unroll
        for (int n = 0; n < TokenTiles; ++n) {
          float(&at)[4] = totals_[m].at[0][n];
          for (int part = 1; part < p_.parts; ++part) {
            const float4 more = slot(part, m, n);
            at[0] += more.x, at[1] += more.y, at[2] += more.z, at[3] += more.w;
          }
        }
      }
    }
    sync_parts();  // the partial sums may be overwritten
    if (part_ == 0 && n_tile_ < item.n_tiles) store(item);
  }

  __device__ __forceinline__ float with_bias(float value, int m, int column,
                                             const Item& item) const {
    const float* bias = p_.matrices[m].table[item.expert].bias;
    return bias == nullptr ? value
                           : value + bias[p_.matrices[m].first_n_tile * kNTileColumns + column];
  }

  __device__ __forceinline__ void store(const Item& item) {
    const int first = (item.first_n_tile + n_tile_) * kNTileColumns + lane_ / 4;
#pragma unroll
    for (int n = 0; n < TokenTiles; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int token = n * kTokenTile + 2 * (lane_ % 4) + c % 2;
        const int column = first + 8 * (c / 2);
        if (token >= item.live || column >= p_.out) continue;
        const int row = item.first_row + token;
        const float scale = p_.row_scales[row];
        float value = with_bias(totals_[0].at[0][n][c] * scale, 0, column, item);
        if (p_.activates) {
          const bool gated = p_.count == 2;
          const float up =
              gated ? with_bias(totals_[1].at[0][n][c] * scale, 1, column, item) : 0.0f;
          value = activated(p_.activation, value, up, gated);
        }
        p_.to[row * p_.to_stride + column] = value;
      }
  }

  const ExpertStreamArgs& p_;
  const PackedGemmArgs& args_;
  int lane_;
  int n_tile_;  // of an item
  int part_;
  float4* partials_;
  Sums<1, TokenTiles> totals_[2];
};

#endif

// Reads the sorted choices before pdl_wait(): the kernel in front triggers only after its own wait
// (expert_prepare.cu). Shared memory: barriers, partial sums, the pipeline.
template <int TokenTiles>
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
    produce_items(p, args, pipeline);
    pdl_wait();
    return;
  }
  StreamConsumer<TokenTiles>(p, args, reinterpret_cast<float4*>(shared + kBarrierBytes))
      .run(pipeline);
#endif
}

// Chooses the n_tiles of an item: the fewest bytes for the busiest CTA; wide items if equal.
void choose_item(const DeviceFacts& facts, ExpertStreamArgs& args) {
  std::int64_t best = 0;
  for (const int n_tiles : {5, 3, 1}) {
    args.item_n_tiles = n_tiles;
    const std::int64_t items = std::int64_t{args.rows.blocks} * groups_of(args);
    const std::int64_t turns = (items + facts.multiprocessors - 1) / facts.multiprocessors;
    const std::int64_t cost = turns * n_tiles;
    if (best == 0 || cost < best) {
      best = cost;
      args.parts = n_tiles;  // kept here until all are seen
    }
  }
  args.item_n_tiles = args.parts;
  args.parts = kConsumerWarps / args.item_n_tiles;
}

template <int TokenTiles>
void start(ExecContext& ctx, ExpertStreamArgs args) {
  const DeviceFacts& facts = cuda_device(ctx).facts();
  PipelineShape shape;
  for (int i = 0; i < args.count; ++i) {
    shape.make_room(args.matrices[i].copy_block_bytes, args.matrices[i].copy_block_scale_bytes);
  }
  const int partial_bytes =
      kConsumerWarps * args.count * TokenTiles * 32 * static_cast<int>(sizeof(float4));
  constexpr int kReserved = 3072;  // static shared memory of the CTA, and the system's
  const int bytes = static_cast<int>(facts.shared_bytes_per_cta) - kReserved;
  shape.fill(bytes - kBarrierBytes - partial_bytes, args.item_n_tiles);
  BL_CUDA_CHECK(cudaFuncSetAttribute(expert_stream_kernel<TokenTiles>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const std::int64_t items = std::int64_t{args.rows.blocks} * groups_of(args);
  const auto ctas = static_cast<unsigned>(std::min<std::int64_t>(items, facts.multiprocessors));
  launch(shape_of(ctx, dim3(ctas), kThreads, static_cast<std::size_t>(bytes)),
         expert_stream_kernel<TokenTiles>, args, shape, partial_bytes);
}

}  // namespace

void expert_stream_gemm(ExecContext& ctx, const ExpertStreamArgs& args) {
  ExpertStreamArgs with = args;
  choose_item(cuda_device(ctx).facts(), with);
  if (args.rows.block_rows == kStreamBlock) {
    start<2>(ctx, with);
  } else {
    start<1>(ctx, with);
  }
}

}  // namespace bl::cuda
