#include "backend/cuda/gemm/wgmma/gemm_wgmma_dequant.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "backend/cuda/device/alignment.h"
#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/cluster.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/tensor_map.h"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/device/wgmma.cuh"
#include "backend/cuda/gemm/activations/act_f16.cuh"
#include "backend/cuda/gemm/splitk/reduce_partials.h"
#include "backend/cuda/gemm/wgmma/epilogue_activate.cuh"
#include "backend/cuda/gemm/wgmma/epilogue_store.cuh"
#include "backend/cuda/gemm/wgmma/producers.cuh"
#include "backend/cuda/gemm/wgmma/settle.cuh"
#include "backend/cuda/gemm/wgmma/tiles.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

enum class WgmmaResult : std::uint8_t {
  kFloats,
  kHalves,
  kActivated,    // act(gate) · up, from tiles of both
  kUpActivated,  // act(gate) · up, from tiles of up: gate is in memory
};
constexpr bool is_activated(WgmmaResult result) {
  return result == WgmmaResult::kActivated || result == WgmmaResult::kUpActivated;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <class Shape, bool kGptq, WgmmaResult kResult>
class WgmmaConsumer {
 public:
  // `memory`, `barriers`: through opaque_smem_ptr(). `factor`: multiplies activated results.
  __device__ __forceinline__ WgmmaConsumer(const WgmmaLaunch& launch, std::byte* memory,
                                           WgmmaBarriers& barriers, float factor)
      : launch_(launch),
        memory_(memory),
        barriers_(barriers),
        lane_(in_register(lane_index())),
        stages_(in_register(launch.stages)),
        stage_bytes_(in_register(launch.stage_bytes)),
        codes_at_(in_register(Shape::kRowsBytes + (warp_index() - 4) * launch.n_tile_room)),
        scales_at_(in_register(launch.scales_at)),
        factor_(factor),
        decoder_(warp_index() - 4, lane_, launch.low_bits, launch.high_bits) {}

  // Multiplies the CTA's tiles. Returns the lane's largest magnitude if results are activated.
  __device__ __forceinline__ float run() {
    const float out_scale = *launch_.args.out_scale;
    for_each_tile<Shape>(launch_, [&](const WgmmaTile<Shape>& tile) {
      const int matrix = tile.template matrix_of<kPaired>(warp_index() - 4);
      widths_ = reinterpret_cast<const Widths*>(table_of(launch_, memory_, matrix).widths) +
                tile.first_k_iter;
      next_widths_ = widths_[0];
      const int k_iters = in_register(tile.k_iters);
      // Operand A of one k_tile is dequantized while the wgmma of the one before reads its own.
      constexpr int kAtOnce = 2 / Shape::kIterKTiles;
      for (int k_iter = 0; k_iter < k_iters; k_iter += kAtOnce) {
        multiply<0>(k_iter);
        if (kAtOnce == 2 && k_iter + 1 < k_iters) multiply<1>(k_iter + 1);
      }
      wgmma_wait_group<0>();
      fence_registers(sums_);
      release(true);
      store(tile, out_scale);
    });
    return largest_;
  }

 private:
  static constexpr bool kPaired = kResult == WgmmaResult::kActivated;

  // Pins a value in a register: the compiler would read parameters and lane numbers again every
  // k_tile.
  __device__ __forceinline__ static int in_register(int value) {
    asm volatile("" : "+r"(value));
    return value;
  }

  // Issues the wgmmas of a pipeline stage, and waits for all but those of its last k_tile. kBuffer:
  // which operand buffer its first k_tile uses. Warps without an n_tile compute anyway; their
  // results are discarded.
  template <int kBuffer>
  __device__ __forceinline__ void multiply(int k_iter) {
    const std::uint32_t widths = next_widths_;
    next_widths_ = widths_[k_iter + 1];
    const std::byte* rows = memory_ + stage_.index * stage_bytes_;
    // Shuffled so that the compiler knows it to be uniform: wgmma descriptors are in uniform
    // registers.
    const std::uint32_t first = __shfl_sync(kAllLanes, shared_address(rows), 0);
    barrier_wait(&barriers_.full[stage_.index], stage_.phase);
    const std::byte* codes = rows + codes_at_;
    const std::byte* scales = rows + scales_at_;
#pragma unroll
    for (int s = 0; s < Shape::kIterKTiles; ++s) {
      const std::uint32_t own = Shape::kIterKTiles == 1 ? widths : widths >> 16 * s & 0xffffu;
      KTileOperands& a = a_[(kBuffer + s) % 2];
      decoder_.decode(own, codes, scales, a);
      wgmma_fence();
      const std::uint64_t operand = row_operand(first + s * Shape::kKTileBytes);
      constexpr std::uint64_t kNext = 32 >> 4;  // 16 k further
      multiply_rows(sums_, a[0][0], operand, s > 0 || k_iter > 0);
      multiply_rows(sums_, a[0][1], operand + kNext, true);
      multiply_rows(sums_, a[1][0], operand + 2 * kNext, true);
      multiply_rows(sums_, a[1][1], operand + 3 * kNext, true);
      wgmma_commit_group();
      wgmma_wait_group<1>();
      keep_alive(a_[(kBuffer + s + 1) % 2]);
      if (s == 0) release(k_iter > 0);
      codes += (own % 256 + own / 256) * k_step_bytes(1);
      scales += kKTileKSteps * sizeof(typename KTileDecoder<kGptq, Shape::kNTiles>::Scales);
    }
    stage_.next(stages_);
  }

  // Keeps the registers of operands alive that a running wgmma may read until here.
  __device__ __forceinline__ static void keep_alive(KTileOperands& a) {
#pragma unroll
    for (int i = 0; i < kKTileKSteps * 8; ++i) {
      asm volatile("" : "+r"(a[i / 8][i / 4 % 2][i % 4])::"memory");
    }
  }

  // The stage before has been read: tells every CTA that copies into it.
  __device__ __forceinline__ void release(bool exists) {
    if (!exists) return;
    __syncwarp();
    if (lane_ < Shape::kCluster) barrier_arrive_at(&barriers_.empty[read_], lane_);
    if (++read_ == stages_) read_ = 0;
  }

  __device__ __forceinline__ void store(const WgmmaTile<Shape>& tile, float out_scale) {
    const int own = warp_index() - 4;
    const int n_tile = tile.template n_tile_of<kPaired>(own);
    const WgmmaMatrix& m = launch_.args.matrices[kPaired ? 0 : tile.matrix];
    if (n_tile >= m.view.n_tiles) return;
    std::byte* room = memory_ + launch_.stores_at + own * launch_.store_bytes;
    const int rows = static_cast<int>(launch_.args.tokens) - tile.first_row;
    const int columns = m.view.out - n_tile * kNTileColumns;
    if constexpr (is_activated(kResult)) {
      const WgmmaActivation& to = launch_.args.activation;
      const TileRows<__half> results{to.rows + tile.first_row * to.stride + n_tile * kNTileColumns,
                                     to.stride, rows, columns};
      const float seen = to.kind == Activation::kSilu
                             ? activate<Activation::kSilu>(tile, room, out_scale, results)
                             : activate<Activation::kGeluTanh>(tile, room, out_scale, results);
      largest_ = fmaxf(largest_, seen);
      return;
    }
    const std::int64_t at = tile.first_row * m.out_stride + n_tile * kNTileColumns;
    if constexpr (kResult == WgmmaResult::kHalves) {
      store_sums<Shape::kRows>(sums_, out_scale, room,
                               {static_cast<__half*>(m.out) + at, m.out_stride, rows, columns});
    } else if constexpr (kResult == WgmmaResult::kFloats) {
      float* to = static_cast<float*>(m.out) + tile.k_split * launch_.args.tokens * m.out_stride;
      store_sums<Shape::kRows>(sums_, out_scale, room, {to + at, m.out_stride, rows, columns},
                               launch_.args.accumulate);
    }
  }

  template <Activation kKind>
  __device__ __forceinline__ float activate(const WgmmaTile<Shape>& tile, std::byte* room,
                                            float out_scale, const TileRows<__half>& results) {
    const int own = warp_index() - 4;
    if constexpr (kPaired) {
      constexpr int kOther = Shape::kNTiles / 2;
      const bool is_up = own >= kOther;
      const WarpPair pair{room, room + (is_up ? -kOther : kOther) * launch_.store_bytes,
                          1 + own % kOther, is_up};
      return activate_tile<kKind, Shape::kRows>(sums_, out_scale, pair, factor_, results);
    } else {
      const WgmmaActivation& to = launch_.args.activation;
      const int column = tile.template n_tile_of<false>(own) * kNTileColumns;
      const TileRows<const __half> gate{to.gate + tile.first_row * to.gate_stride + column,
                                        to.gate_stride, results.rows, results.columns};
      return activate_tile<kKind, Shape::kRows>(sums_, out_scale, UpNTile{room, gate, results},
                                                factor_);
    }
  }

  const WgmmaLaunch& launch_;
  std::byte* memory_;
  WgmmaBarriers& barriers_;
  int lane_;
  int stages_;
  int stage_bytes_;
  int codes_at_;  // of the warp's n_tile in a stage
  int scales_at_;
  float factor_;
  float largest_ = 0.0f;
  KTileDecoder<kGptq, Shape::kNTiles> decoder_;
  // The widths of a stage's k_steps, a byte each.
  using Widths = std::conditional_t<Shape::kIterKTiles == 1, std::uint16_t, std::uint32_t>;
  const Widths* widths_ = nullptr;
  std::uint32_t next_widths_ = 0;
  PipelineStage stage_;
  int read_ = 0;  // the stage that is released next
  KTileOperands a_[2];
  float sums_[Shape::kRows / 2];
};

#endif

template <class Shape, bool kGptq, WgmmaResult kResult>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    gemm_wgmma_dequant_kernel(const __grid_constant__ WgmmaLaunch launch,
                              const __grid_constant__ RowMaps rows) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr bool kPaired = kResult == WgmmaResult::kActivated;
  pdl_trigger();
  __shared__ std::uint32_t largest;
  float factor = 1.0f;
  if constexpr (is_activated(kResult)) {
    __shared__ float warp_partials[Shape::kThreads / 32];
    const WgmmaActivation& activation = launch.args.activation;
    if (activation.settles) {
      const float act_scale = act_scale_of_rows(activation, warp_partials);
      if (act_scale == 1.0f) return;
      factor = 1.0f / act_scale;
    }
    if (threadIdx.x == 0) largest = 0;
  }
  extern __shared__ std::byte raw[];
  __shared__ WgmmaBarriers barriers;
  std::byte* memory = opaque_smem_ptr(
      raw + (kTileAlignment - shared_address(raw) % kTileAlignment) % kTileAlignment);
  if (threadIdx.x == 0) {
    for (int i = 0; i < launch.stages; ++i) {
      // Arrivals: the copy of activations, the lanes that copy codes, the warps that make scales.
      barrier_init(&barriers.full[i], 1 + 32 + kKTileKSteps * 32);
      barrier_init(&barriers.empty[i], Shape::kCluster * Shape::kNTiles);
    }
    barrier_init_fence();
  }
  // All matrices at once, some of the threads for each, to hide the latency of memory.
  const int threads = Shape::kThreads / launch.args.count;
  if (const int i = static_cast<int>(threadIdx.x) / threads; i < launch.args.count) {
    const CodeMatrixView& m = launch.args.matrices[i].view;
    copy_k_step_table(m, static_cast<int>(threadIdx.x) % threads, threads,
                      memory + launch.tables_at + i * k_step_table_bytes(m.k_steps));
  }
  __syncthreads();
  if constexpr (Shape::kCluster > 1) {
    cluster_arrive_relaxed();  // barrier_init_fence() has published the barriers
    cluster_wait();
  }
  if (threadIdx.x < 128) {
    decrease_registers<Shape::kFewRegisters>();
    const int warp = warp_index();
    if (warp == 0) {
      produce_rows<Shape>(launch, rows, memory, barriers);
    } else if (warp == 1) {
      produce_codes<Shape, kPaired>(launch, memory, barriers);
    } else {
      produce_scales<Shape, kGptq, kPaired>(launch, memory, barriers, warp - 2);
    }
  } else {
    increase_registers<Shape::kManyRegisters>();
    pdl_wait();
    const float seen = WgmmaConsumer<Shape, kGptq, kResult>(launch, memory, barriers, factor).run();
    if constexpr (is_activated(kResult)) {
      const WgmmaActivation& activation = launch.args.activation;
      if (!activation.settles) store_cta_absmax<Shape>(seen, &largest, activation.largest);
    }
  }
  // No CTA of a cluster exits while another may still write to it or arrive at its barriers.
  if constexpr (Shape::kCluster > 1) {
    __syncwarp();
    cluster_arrive();
    cluster_wait();
  }
#endif
}

using WgmmaKernel = void (*)(WgmmaLaunch, RowMaps);

template <class Shape, bool kGptq>
WgmmaKernel kernel_of(const WgmmaArgs& args) {
  if (args.has_both()) return gemm_wgmma_dequant_kernel<Shape, kGptq, WgmmaResult::kActivated>;
  if constexpr (Shape::can_read_gate(kGptq)) {
    if (args.activates()) return gemm_wgmma_dequant_kernel<Shape, kGptq, WgmmaResult::kUpActivated>;
  }
  BL_CHECK(!args.activates());
  return args.halves ? gemm_wgmma_dequant_kernel<Shape, kGptq, WgmmaResult::kHalves>
                     : gemm_wgmma_dequant_kernel<Shape, kGptq, WgmmaResult::kFloats>;
}

bool is_gptq(const WgmmaArgs& args) { return args.matrices[0].view.kind != ScaleKind::kExl2; }

// Whether the outputs are adjacent columns, which can be reduced together.
bool lie_side_by_side(const WgmmaArgs& args) {
  for (int i = 1; i < args.count; ++i) {
    const WgmmaMatrix& before = args.matrices[i - 1];
    if (args.matrices[i].out != static_cast<float*>(before.out) + before.view.out ||
        args.matrices[i].out_stride != before.out_stride) {
      return false;
    }
  }
  return true;
}

// Redirects the outputs to split-K partial sums; returns the reductions that make the outputs of
// them.
std::vector<PartialSums> redirect_to_partials(ExecContext& ctx, WgmmaArgs& args, int k_splits) {
  std::vector<PartialSums> sums;
  const bool together = lie_side_by_side(args);
  for (int i = 0; i < args.count;) {
    std::int64_t columns = 0;
    int end = i;
    do {
      columns += args.matrices[end++].view.out;
    } while (together && end < args.count);
    PartialSums& sum = sums.emplace_back();
    sum.to = view_of(static_cast<float*>(args.matrices[i].out), {args.tokens, columns});
    sum.to.row_stride = args.matrices[i].out_stride;
    if (args.accumulate) sum.from = sum.to;
    sum.partials = ctx.scratch->take_f32({k_splits, args.tokens, columns});
    auto* to = sum.partials.as<float>();
    for (; i < end; ++i) {
      args.matrices[i].out = to;
      args.matrices[i].out_stride = columns;
      to += args.matrices[i].view.out;
    }
  }
  args.accumulate = false;
  return sums;
}

// Makes a tensor map for each matrix; adjacent matrices with the same rows share one.
RowMaps map_rows(const WgmmaArgs& args, int box_rows) {
  const int k = args.matrices[0].view.k_steps * kKStepSize;
  RowMaps maps{};
  for (int i = 0; i < args.count; ++i) {
    const __half* rows = args.matrices[i].rows;
    if (i > 0 && rows == args.matrices[i - 1].rows) {
      maps.of[i] = maps.of[i - 1];
    } else {
      maps.of[i] =
          half_rows_map(reinterpret_cast<const std::byte*>(rows), k, args.tokens, box_rows);
    }
  }
  return maps;
}

// Enqueues the launch; with an activation also a second one, which repeats the tiles if the rows
// have to be divided by a scale.
template <class Shape>
void start(ExecContext& ctx, const WgmmaPlan& plan) {
  static_assert(sizeof(StageScales<true, Shape::kNTiles>) ==
                stage_scale_bytes(true, Shape::kNTiles));
  static_assert(sizeof(StageScales<false, Shape::kNTiles>) ==
                stage_scale_bytes(false, Shape::kNTiles));
  const DeviceFacts& facts = cuda_device(ctx).facts();
  ArenaScope scope(*ctx.scratch);
  WgmmaLaunch launch_args = plan.launch;
  const WgmmaArgs& args = plan.launch.args;
  std::vector<PartialSums> sums;
  if (launch_args.k_splits > 1)
    sums = redirect_to_partials(ctx, launch_args.args, launch_args.k_splits);
  const RowMaps rows = map_rows(args, Shape::kRows / Shape::kCluster);
  const int clusters = std::min(launch_args.cluster_tiles, facts.multiprocessors / Shape::kCluster);
  const WgmmaKernel kernel =
      is_gptq(args) ? kernel_of<Shape, true>(args) : kernel_of<Shape, false>(args);
  BL_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.bytes));
  LaunchShape shape = shape_of(ctx, dim3(static_cast<unsigned>(clusters * Shape::kCluster)),
                               Shape::kThreads, static_cast<std::size_t>(plan.bytes));
  shape.cluster = Shape::kCluster;
  WgmmaActivation& activation = launch_args.args.activation;
  if (args.activates()) activation.largest = ctx.scratch->take_f32({shape.grid.x}).as<float>();
  launch(shape, kernel, launch_args, rows);
  if (args.activates()) {
    activation.settles = true;
    launch(shape, kernel, launch_args, rows);
  }
  for (const PartialSums& sum : sums) reduce_partials(ctx, sum);
}

}  // namespace

bool has_wgmma(const DeviceFacts& facts) { return facts.compute_capability == 90; }

void gemm_wgmma_dequant(ExecContext& ctx, const WgmmaPlan& plan) {
  with_wgmma_shape(plan.launch.args.tokens, [&]<class Shape>(Shape) { start<Shape>(ctx, plan); });
}

}  // namespace bl::cuda
