#include "backend/cuda/gemm/skinny/gemm_skinny_smem.h"

#include <algorithm>

#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/epilogue.cuh"
#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"
#include "backend/cuda/gemm/skinny/copy_block_mma.cuh"
#include "backend/cuda/gemm/width_sets.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

constexpr int kThreads = kConsumerThreads + 32;  // the last warp is the producer
struct Launch {
  PackedGemmArgs args;
  PipelineShape pipeline;
  const std::int32_t* begins = nullptr;  // of the CTAs' ranges
  // In shared memory, behind the barriers: the warps' partial sums, then the pipeline.
  int pipeline_offset = 0;
};

// Buffers of partial sums: with two, warps can go on to the next group while one is reduced; with
// more than 8 tokens the pipeline needs the room.
template <int TokenTiles>
constexpr int kHalves = TokenTiles == 1 ? 2 : 1;

// The fixed part of shared memory, in front of everything else.
struct alignas(128) Shared {
  std::uint64_t barriers[2 * kMaxStages];
  float row_scales[kMaxSkinnyTokens];
  FinishedNTiles finished[2];
};

// Reduces and stores the results of a group of n_tiles. A thread has the same elements of both
// groups of a gated GEMM.
template <int NTiles, int TokenTiles>
class Results {
 public:
  __device__ __forceinline__ void store(const PackedGemmArgs& args, const FinishedNTiles& group,
                                        const float* warp_sums, const float* row_scales) {
    const int warp_floats = NTiles * kNTileColumns * args.tokens;
    const int count = group.n_tiles.count * kNTileColumns * args.tokens;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int e = static_cast<int>(threadIdx.x) + k * kConsumerThreads;
      if (e >= count) break;
      const float sum = sum_warps(warp_sums, warp_floats, e);
      const int row = e / kNTileColumns;
      const int n_tile = args.tokens == 1 ? row : row / args.tokens;
      const int token = row - n_tile * args.tokens;
      store_result(
          {group.matrix, token, (group.n_tiles.first + n_tile) * kNTileColumns + e % kNTileColumns},
          args, gate_[k], sum * row_scales[token] * args.multiplier);
    }
  }

 private:
  static constexpr int kEach =
      (NTiles * kNTileColumns * TokenTiles * kTokenTile + kConsumerThreads - 1) / kConsumerThreads;

  float gate_[kEach];
};

template <int NTiles, int TokenTiles, class Scales, WidthSet kWidths>
__device__ __forceinline__ void multiply_cta_range(const Launch& launch, std::byte* shared,
                                                   SmemPipeline<true>& pipeline) {
  const PackedGemmArgs& args = launch.args;
  auto& own = *reinterpret_cast<Shared*>(shared);
  const int warp_floats = NTiles * kNTileColumns * args.tokens;
  auto* warp_sums = reinterpret_cast<float*>(shared + sizeof(Shared));
  pdl_wait();
  if (static_cast<int>(threadIdx.x) < args.tokens) {
    own.row_scales[threadIdx.x] = args.row_scales[args.first_token + threadIdx.x];
  }
  SummedInputReader<TokenTiles> input;
  Results<NTiles, TokenTiles> results;
  Sums<NTiles, TokenTiles> totals;
  totals.clear();
  StageView copy_block;
  int next = warp_index();
  int half = 0;
  bool again = false;
  do {
    pipeline.next(args, nullptr, copy_block);
    const CodeMatrixView& m = args.matrices[copy_block.matrix].view;
    input.open(copy_block.fragments, copy_block.k_step_stride, kFragmentBytes, args.tokens);
    input.open_sums(args.matrices[copy_block.matrix].k_block_sums + args.first_token * m.k_steps,
                    sum_columns(args.tokens));
    multiply_copy_block<NTiles, TokenTiles, Scales, kWidths>(m, copy_block, input, next, totals);
    if ((copy_block.flags & kEndsNTiles) == 0) {
      pipeline.release();
      continue;
    }
    const FinishedNTiles finished{copy_block.matrix, pipeline.n_tiles()};
    pipeline.release();
    if (kHalves<TokenTiles> == 1 && again) consumer_sync();  // the sums before have been read
    if (threadIdx.x == 0) own.finished[half] = finished;
    again = true;
    float* here = warp_sums + half * kConsumerWarps * warp_floats;
    keep_sums(totals, args.tokens, here + warp_index() * warp_floats);
    totals.clear();
    consumer_sync();
    results.store(args, own.finished[half], here, own.row_scales);
    // Switch buffers: a warp can only write this one again behind the next barrier, after these
    // reads.
    if (kHalves<TokenTiles> == 2) half ^= 1;
  } while ((copy_block.flags & kEndsCtaRange) == 0);
}

template <int NTiles, int TokenTiles, bool kGptq, WidthSet kWidths>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_skinny_smem_kernel(const __grid_constant__ Launch launch) {
  extern __shared__ __align__(128) std::byte shared[];
  pdl_trigger();
  const int begin = launch.begins[blockIdx.x];
  const int end = launch.begins[blockIdx.x + 1];
  const CopyBlockWalk walk(launch.args, begin, end, NTiles);
  using Scales = std::conditional_t<kGptq, GptqScales, ExlScales>;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  auto& own = *reinterpret_cast<Shared*>(shared);
  SmemPipeline<true> pipeline(launch.pipeline, shared + launch.pipeline_offset, own.barriers);
  if (threadIdx.x == 0) pipeline.init();
  __syncthreads();
  if (threadIdx.x >= kConsumerThreads) {
    pipeline.produce(launch.args, walk);
    return;
  }
#else
  SmemPipeline<true> pipeline(launch.pipeline, walk);
  if (threadIdx.x >= kConsumerThreads) return;
#endif
  multiply_cta_range<NTiles, TokenTiles, Scales, kWidths>(launch, shared, pipeline);
}

// Lays out shared memory; returns its bytes.
int lay_out(const DeviceFacts& facts, int n_tiles, int halves, Launch& launch) {
  const PackedGemmArgs& args = launch.args;
  PipelineShape& pipeline = launch.pipeline;
  pipeline.input_bytes = args.tokens * kFragmentBytes;
  for (int i = 0; i < args.count; ++i) {
    pipeline.make_room(args.matrices[i].copy_block_bytes, args.matrices[i].copy_block_scale_bytes);
  }
  const int warp_floats = n_tiles * kNTileColumns * args.tokens * static_cast<int>(sizeof(float));
  launch.pipeline_offset = PipelineShape::rounded(static_cast<int>(sizeof(Shared)) +
                                                  halves * kConsumerWarps * warp_floats);
  if (!facts.dependent_launch()) return launch.pipeline_offset;  // no bulk copies either
  const auto whole = static_cast<int>(facts.shared_bytes_per_cta);
  pipeline.fill(whole - launch.pipeline_offset, n_tiles);
  return whole;
}

using SkinnySmemKernel = void (*)(Launch);

template <int NTiles, int TokenTiles, bool kGptq>
SkinnySmemKernel kernel_of(WidthSet widths) {
  return with_width_set<kGptq>(widths, [&]<WidthSet kWidths>() -> SkinnySmemKernel {
    return gemm_skinny_smem_kernel<NTiles, TokenTiles, kGptq, kWidths>;
  });
}

template <int NTiles, int TokenTiles>
void start(ExecContext& ctx, Launch& launch_args, int ctas) {
  const int bytes = lay_out(cuda_device(ctx).facts(), NTiles, kHalves<TokenTiles>, launch_args);
  const bool gptq = launch_args.args.matrices[0].view.kind != ScaleKind::kExl2;
  const WidthSet widths = widths_of(launch_args.args);
  const SkinnySmemKernel kernel = gptq ? kernel_of<NTiles, TokenTiles, true>(widths)
                                       : kernel_of<NTiles, TokenTiles, false>(widths);
  BL_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  launch(
      shape_of(ctx, dim3(static_cast<unsigned>(ctas)), kThreads, static_cast<std::size_t>(bytes)),
      kernel, launch_args);
}

// Returns the n_tiles of a CTA, in one of the two matrices if they are gated.
int cta_range_of(const PackedGemmArgs& args, int ctas) {
  int n_tiles = 0;
  for (int i = 0; i < (args.gated ? 1 : args.count); ++i) n_tiles += args.matrices[i].view.n_tiles;
  return (n_tiles + ctas - 1) / ctas;
}

}  // namespace

void gemm_skinny_smem(ExecContext& ctx, const PackedGemmArgs& args, const CtaRanges& ranges,
                      const std::int32_t* begins) {
  BL_CHECK(args.tokens > 0 && args.tokens <= kMaxSkinnyTokens);
  check_packed_gemm(args);
  Launch launch_args;
  launch_args.args = args;
  launch_args.begins = begins;
  // Kernels for two token tiles exist on this card too.
  const bool has_others = max_skinny_tokens(cuda_device(ctx).facts()) > kTokenTile;
  if (args.tokens <= kTokenTile && !(args.regardless_of_batch && has_others)) {
    start<2, 1>(ctx, launch_args, ranges.ctas);
  } else if (cta_range_of(args, ranges.ctas) <= 2) {
    start<2, 2>(ctx, launch_args, ranges.ctas);
  } else {
    start<3, 2>(ctx, launch_args, ranges.ctas);
  }
}

}  // namespace bl::cuda
