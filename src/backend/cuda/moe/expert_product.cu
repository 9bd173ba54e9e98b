// Grouped GEMM of rows sorted by expert with packed codes (EXL2, GPTQ), any card. A CTA multiplies
// up to 8 rows (16 if blocks are large) of one block by one group of 3 n_tiles. Its 15 consumer
// warps take turns with the k_blocks, and their partial sums are reduced in a fixed order, so that
// a row's result depends neither on the other rows nor on the size of the block. With blocks of 8
// rows, on compute capability 9.0 and later, a producer warp brings copy_blocks through the smem
// pipeline, whose stages hold no activations here. Bound by reading the chosen experts' weights;
// not measured.

#include <algorithm>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"
#include "backend/cuda/gemm/skinny/copy_block_mma.cuh"
#include "backend/cuda/moe/expert_kernels.h"

namespace bl::cuda {
namespace {

// N_tiles of a group: as many as registers can hold sums of.
constexpr int kGroupNTiles = 3;

// Blocks of 8 rows wait for weights, which the pipeline brings. Blocks of 32 find them in L2.
template <int TokenTiles>
constexpr bool kHasPipeline = TokenTiles == 1;
template <int TokenTiles>
constexpr int kMaxThreads = kConsumerThreads + (kHasPipeline<TokenTiles> ? 32 : 0);

// The group of n_tiles that a CTA multiplies.
struct NTileGroup {
  int matrix;
  int first;
  int end;
};
__device__ __forceinline__ NTileGroup n_tile_group(const ExpertGemmArgs& p) {
  const int group = static_cast<int>(blockIdx.y);
  const int of_first = (n_tiles_of(p.matrices[0].out) + kGroupNTiles - 1) / kGroupNTiles;
  const int matrix = group < of_first ? 0 : 1;
  const int first = (matrix == 0 ? group : group - of_first) * kGroupNTiles;
  return {matrix, first, min(first + kGroupNTiles, n_tiles_of(p.matrices[matrix].out))};
}

// Copies an object, eight bytes a thread.
template <class T>
__device__ __forceinline__ void copy_words(T& to, const T& from) {
  static_assert(sizeof(T) % sizeof(uint2) == 0 && sizeof(T) / sizeof(uint2) <= kConsumerThreads);
  static_assert(alignof(T) >= alignof(uint2));
  if (threadIdx.x < sizeof(T) / sizeof(uint2)) {
    reinterpret_cast<uint2*>(&to)[threadIdx.x] = reinterpret_cast<const uint2*>(&from)[threadIdx.x];
  }
}

// Scales of any format, since experts may differ.
struct AnyScales {
  ExlScales exl2;
  GptqScales gptq;
  __device__ static constexpr int bytes(ScaleKind kind) { return scale_bytes(kind); }
  __device__ __forceinline__ AnyScales(const CodeMatrixView& m, const KBlock& k_block, int lane,
                                       float factor)
      : exl2(m, k_block, lane, factor), gptq(m, k_block, lane, factor) {}
  __device__ __forceinline__ LaneScales of(const std::byte* scales, int lane) const {
    return gptq.kind == ScaleKind::kExl2 ? exl2.of(scales, lane) : gptq.of(scales, lane);
  }
};

// Returns the whole group as one stage, in global memory.
__device__ __forceinline__ StageView whole_group(const CodeMatrixView& m, const NTileGroup& group) {
  StageView view;
  view.n_tiles = group.end - group.first;
  view.k_blocks = m.k_block_count;
  view.k_block_words = reinterpret_cast<const uint4*>(m.k_blocks);
  view.scale_stride = static_cast<int>(scale_stride(m.kind, m.groups));
  view.scales = m.scales + group.first * std::int64_t{view.scale_stride};
  view.code_stride = static_cast<int>(m.n_tile_bytes);
  view.codes = m.codes + group.first * m.n_tile_bytes;
  return view;
}

// What a CTA works on; in shared memory, so that it takes no registers from the multiplication.
struct Work {
  PackedGemmArgs args;  // only what the pipeline reads is set
  const float* bias;
  NTileGroup group;
  int live;  // rows
};

// Returns the first of the rows that a CTA multiplies.
template <int TokenTiles>
__device__ __forceinline__ int first_row_of(const ExpertGemmArgs& p) {
  return static_cast<int>(blockIdx.x) * p.rows.block_rows +
         static_cast<int>(blockIdx.z) * TokenTiles * kTokenTile;
}

// Called by all threads; returns false if the CTA has nothing to do.
template <int TokenTiles>
__device__ __forceinline__ bool find_work(const ExpertGemmArgs& p, Work& work) {
  const int expert = __ldcg(p.rows.expert_of_block + blockIdx.x);
  if (expert < 0) return false;
  const int before = static_cast<int>(blockIdx.z) * TokenTiles * kTokenTile;
  const int live = min(__ldcg(p.rows.rows_of_block + blockIdx.x) - before, TokenTiles * kTokenTile);
  if (live <= 0) return false;
  const NTileGroup group = n_tile_group(p);
  const ExpertMatrix& matrix = p.matrices[group.matrix].table[expert];
  copy_words(work.args.matrices[0].view, matrix.view);
  if (threadIdx.x == 0) {
    work.args.gated = false;
    work.bias = matrix.bias;
    work.group = group;
    work.live = live;
  }
  __syncthreads();
  return work.args.matrices[0].view.codes != nullptr;
}

// Reduces and stores the results of the block's rows in the group's columns.
__device__ __forceinline__ void store_rows(const ExpertGemmArgs& p, const Work& work,
                                           int warp_floats, int first_row, const float* warp_sums) {
  const ExpertGemmArgs::Matrix& to = p.matrices[work.group.matrix];
  const int count = (work.group.end - work.group.first) * kNTileColumns * work.live;
  for (int e = static_cast<int>(threadIdx.x); e < count; e += kConsumerThreads) {
    const int n_tile = e / kNTileColumns / work.live;
    const int row = first_row + e / kNTileColumns % work.live;
    const int column = (work.group.first + n_tile) * kNTileColumns + e % kNTileColumns;
    if (column >= to.out) continue;
    float value = sum_warps(warp_sums, warp_floats, e) * p.row_scales[row];
    if (work.bias != nullptr) value += work.bias[column];
    p.out[row * p.out_stride + to.first_column + column] = value;
  }
}

// grid (blocks, groups of n_tiles of the first matrix and the second, parts of a block). Reads the
// sorted choices before pdl_wait(): the kernel in front triggers only after its own wait
// (expert_prepare.cu).
template <int TokenTiles>
__global__ void __launch_bounds__(kMaxThreads<TokenTiles>, 1)
    expert_code_kernel(const __grid_constant__ ExpertGemmArgs p,
                       const __grid_constant__ PipelineShape shape) {
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ __align__(16) std::byte work_bytes[sizeof(Work)];
  auto& work = *reinterpret_cast<Work*>(work_bytes);
  pdl_trigger();
  if (!find_work<TokenTiles>(p, work)) {
    pdl_wait();
    return;
  }
  const CodeMatrixView& m = work.args.matrices[0].view;
  const int first_row = first_row_of<TokenTiles>(p);
  const int token_bytes = p.k_steps * kFragmentBytes;
  const auto* fragments =
      reinterpret_cast<const std::byte*>(p.matrices[work.group.matrix].fragments);
  InputReader<TokenTiles> input;
  input.open(fragments + std::int64_t{first_row} * token_bytes, kFragmentBytes, token_bytes,
             work.live);
  Sums<kGroupNTiles, TokenTiles> totals;
  totals.clear();
  int next = warp_index();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kHasPipeline<TokenTiles>) {
    SmemPipeline<false> pipeline(shape, shared + kBarrierBytes,
                                 reinterpret_cast<std::uint64_t*>(shared));
    if (threadIdx.x == 0) pipeline.init();
    __syncthreads();
    if (threadIdx.x >= kConsumerThreads) {
      pipeline.produce(work.args,
                       CopyBlockWalk(work.args, work.group.first, work.group.end, kGroupNTiles));
      return;
    }
    pdl_wait();
    StageView copy_block;
    do {
      pipeline.next(work.args, nullptr, copy_block);
      multiply_copy_block<kGroupNTiles, TokenTiles, AnyScales, kAllWidths>(m, copy_block, input,
                                                                           next, totals);
      pipeline.release();
    } while ((copy_block.flags & kEndsCtaRange) == 0);
  } else
#endif
  {
    if (threadIdx.x >= kConsumerThreads) return;
    pdl_wait();
    multiply_copy_block<kGroupNTiles, TokenTiles, AnyScales, kAllWidths>(
        m, whole_group(m, work.group), input, next, totals);
  }
  consumer_sync();  // the stages are not read any more
  auto* warp_sums = reinterpret_cast<float*>(shared + kBarrierBytes);
  const int warp_floats = kGroupNTiles * kNTileColumns * work.live;
  keep_sums(totals, work.live, warp_sums + warp_index() * warp_floats);
  consumer_sync();
  store_rows(p, work, warp_floats, first_row, warp_sums);
}

// Shared memory: barriers, then the pipeline, whose room the warps' sums use afterwards.
struct Layout {
  PipelineShape shape;
  int bytes = 0;
};

template <int TokenTiles>
Layout lay_out(const DeviceFacts& facts, const ExpertGemmArgs& args) {
  Layout layout;
  PipelineShape& shape = layout.shape;
  constexpr int kSumBytes = kConsumerWarps * kGroupNTiles * kNTileColumns * TokenTiles *
                            kTokenTile * static_cast<int>(sizeof(float));
  layout.bytes = kBarrierBytes + kSumBytes;
  if constexpr (kHasPipeline<TokenTiles>) {
    if (!facts.dependent_launch()) return layout;  // no bulk copies either
    for (int i = 0; i < args.count; ++i) {
      shape.make_room(args.matrices[i].copy_block_bytes, args.matrices[i].copy_block_scale_bytes);
    }
    constexpr int kReserved = 2048;  // static shared memory of the CTA, and the system's
    layout.bytes = static_cast<int>(facts.shared_bytes_per_cta) - kReserved;
    shape.fill(layout.bytes - kBarrierBytes, kGroupNTiles);
  }
  return layout;
}

template <int TokenTiles>
void start(ExecContext& ctx, const ExpertGemmArgs& args) {
  const Layout layout = lay_out<TokenTiles>(cuda_device(ctx).facts(), args);
  BL_CUDA_CHECK(cudaFuncSetAttribute(expert_code_kernel<TokenTiles>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, layout.bytes));
  int groups = 0;
  for (int i = 0; i < args.count; ++i) {
    groups += (n_tiles_of(args.matrices[i].out) + kGroupNTiles - 1) / kGroupNTiles;
  }
  const dim3 grid(static_cast<unsigned>(args.rows.blocks), static_cast<unsigned>(groups),
                  static_cast<unsigned>(args.rows.block_rows / (TokenTiles * kTokenTile)));
  const int threads = kConsumerThreads + (layout.shape.bytes > 0 ? 32 : 0);
  launch(shape_of(ctx, grid, dim3(static_cast<unsigned>(threads)),
                  static_cast<std::size_t>(layout.bytes)),
         expert_code_kernel<TokenTiles>, args, layout.shape);
}

}  // namespace

void expert_code_gemm(ExecContext& ctx, const ExpertGemmArgs& args) {
  if (args.rows.block_rows == kSmallBlock) {
    start<1>(ctx, args);
  } else {
    start<2>(ctx, args);
  }
}

}  // namespace bl::cuda
