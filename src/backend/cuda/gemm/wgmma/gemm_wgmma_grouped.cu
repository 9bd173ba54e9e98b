#include "backend/cuda/gemm/wgmma/gemm_wgmma_grouped.h"

#include <algorithm>

#include "backend/cuda/device/bulk_copy.cuh"
#include "backend/cuda/device/cluster.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/tensor_map.h"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/device/wgmma.cuh"
#include "backend/cuda/gemm/wgmma/epilogue_activate.cuh"
#include "backend/cuda/gemm/wgmma/epilogue_store.cuh"
#include "backend/cuda/gemm/wgmma/grouped_producers.cuh"
#include "backend/cuda/gemm/wgmma/settle.cuh"

namespace bl::cuda {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <class Shape, bool kGptq, bool kPaired>
class GroupedConsumer {
 public:
  // `memory`: through opaque_smem_ptr(). `factor`: multiplies activated results.
  __device__ __forceinline__ GroupedConsumer(const WgmmaGroupedLaunch& launch, std::byte* memory,
                                             WgmmaBarriers& barriers, float factor)
      : launch_(launch),
        memory_(memory),
        barriers_(barriers),
        lane_(in_register(lane_index())),
        stages_(in_register(launch.stages)),
        stage_bytes_(in_register(launch.stage_bytes)),
        codes_at_(in_register(Shape::kRowsBytes + (warp_index() - 4) * launch.n_tile_room)),
        scales_at_(in_register(launch.scales_at)),
        matrix_(in_register(grouped_matrix_of<Shape, kPaired>(warp_index() - 4))),
        factor_(factor),
        decoder_(warp_index() - 4, lane_, launch.low_bits, launch.high_bits) {}

  // Multiplies the CTA's tiles. Returns the lane's largest magnitude if results are activated.
  __device__ __forceinline__ float run() {
    const int step = static_cast<int>(gridDim.x) / Shape::kCluster;
    const int first = static_cast<int>(blockIdx.x) / Shape::kCluster;
    const int tiles = (cluster_tiles_of(launch_) - first + step - 1) / step;
    for (int i = 0; i < tiles; ++i) {
      barrier_wait(&barriers_.full[stage_.index], stage_.phase);
      const int k_iters = in_register(header(stage_.index).k_iters);
      // Operand A of one k_tile is dequantized while the wgmma of the one before reads its own.
      for (int k_iter = 0; k_iter < k_iters; k_iter += 2) {
        multiply<0>(k_iter);
        if (k_iter + 1 < k_iters) multiply<1>(k_iter + 1);
      }
      wgmma_wait_group<0>();
      fence_registers(sums_);
      const int4 place = *reinterpret_cast<const int4*>(&header(read_).first_row);
      release(true);
      store(place, *launch_.args.out_scale);
    }
    return largest_;
  }

 private:
  // Pins a value in a register: the compiler would read parameters and lane numbers again every
  // k_tile.
  __device__ __forceinline__ static int in_register(int value) {
    asm volatile("" : "+r"(value));
    return value;
  }
  __device__ __forceinline__ const WgmmaStageHeader& header(int stage) const {
    return *reinterpret_cast<const WgmmaStageHeader*>(memory_ + stage * stage_bytes_ + scales_at_ -
                                                      kStageHeaderBytes);
  }

  // Issues the wgmmas of a k_tile, and waits for those of the one before. Warps without an n_tile
  // compute anyway; their results are discarded.
  template <int kBuffer>
  __device__ __forceinline__ void multiply(int k_iter) {
    const std::byte* rows = memory_ + stage_.index * stage_bytes_;
    // Shuffled so that the compiler knows it to be uniform: wgmma descriptors are in uniform
    // registers.
    const std::uint32_t first = __shfl_sync(kAllLanes, shared_address(rows), 0);
    barrier_wait(&barriers_.full[stage_.index], stage_.phase);
    const std::byte* scales = rows + scales_at_;
    const auto* head = reinterpret_cast<const WgmmaStageHeader*>(scales - kStageHeaderBytes);
    KTileOperands& a = a_[kBuffer];
    decoder_.decode(head->widths[matrix_], rows + codes_at_, scales, a);
    wgmma_fence();
    const std::uint64_t operand = row_operand(first);
    constexpr std::uint64_t kNext = 32 >> 4;  // 16 k further
    multiply_rows(sums_, a[0][0], operand, k_iter > 0);
    multiply_rows(sums_, a[0][1], operand + kNext, true);
    multiply_rows(sums_, a[1][0], operand + 2 * kNext, true);
    multiply_rows(sums_, a[1][1], operand + 3 * kNext, true);
    wgmma_commit_group();
    wgmma_wait_group<1>();
    keep_alive(a_[1 - kBuffer]);
    release(k_iter > 0);
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

  // `place`: first row, rows and first n_tile of the tile.
  __device__ __forceinline__ void store(const int4& place, float out_scale) {
    constexpr int kRows = Shape::kRows;
    const int own = warp_index() - 4;
    const int column = (place.z + grouped_n_tile_of<Shape, kPaired>(own)) * kNTileColumns;
    const int columns = launch_.args.out - column;
    if (columns <= 0) return;
    std::byte* room = memory_ + launch_.stores_at + own * launch_.store_bytes;
    if constexpr (kPaired) {
      const WgmmaActivation& to = launch_.args.activation;
      const TileRows<__half> results{to.rows + place.x * to.stride + column, to.stride, place.y,
                                     columns};
      constexpr int kOther = Shape::kNTiles / 2;
      const bool is_up = own >= kOther;
      const WarpPair pair{room, room + (is_up ? -kOther : kOther) * launch_.store_bytes,
                          1 + own % kOther, is_up};
      const float seen =
          to.kind == Activation::kSilu
              ? activate_tile<Activation::kSilu, kRows>(sums_, out_scale, pair, factor_, results)
              : activate_tile<Activation::kGeluTanh, kRows>(sums_, out_scale, pair, factor_,
                                                            results);
      largest_ = fmaxf(largest_, seen);
    } else {
      float* to = launch_.args.to + place.x * launch_.args.out_stride + column;
      store_sums<kRows>(sums_, out_scale, room, {to, launch_.args.out_stride, place.y, columns},
                        false);
    }
  }

  const WgmmaGroupedLaunch& launch_;
  std::byte* memory_;
  WgmmaBarriers& barriers_;
  int lane_;
  int stages_;
  int stage_bytes_;
  int codes_at_;  // of the warp's n_tile in a stage
  int scales_at_;
  int matrix_;  // of the warp's n_tile
  float factor_;
  float largest_ = 0.0f;
  KTileDecoder<kGptq, Shape::kNTiles> decoder_;
  PipelineStage stage_;
  int read_ = 0;  // the stage that is released next
  KTileOperands a_[2];
  float sums_[Shape::kRows / 2];
};

#endif

template <class Shape, bool kGptq, bool kPaired>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    gemm_wgmma_grouped_kernel(const __grid_constant__ WgmmaGroupedLaunch launch,
                              const __grid_constant__ CUtensorMap rows) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  pdl_trigger();
  __shared__ std::uint32_t largest;
  float factor = 1.0f;
  const WgmmaActivation& activation = launch.args.activation;
  if constexpr (kPaired) {
    __shared__ float warp_partials[Shape::kThreads / 32];
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
  __syncthreads();
  cluster_arrive_relaxed();  // barrier_init_fence() has published the barriers
  cluster_wait();
  pdl_wait();
  if (threadIdx.x < 128) {
    decrease_registers<Shape::kFewRegisters>();
    const int warp = warp_index();
    if (warp == 0) {
      produce_grouped_rows<Shape>(launch, rows, memory, barriers);
    } else if (warp == 1) {
      produce_grouped_codes<Shape, kPaired>(launch, memory, barriers);
    } else {
      produce_grouped_scales<Shape, kGptq, kPaired>(launch, memory, barriers, warp - 2);
    }
  } else {
    increase_registers<Shape::kManyRegisters>();
    const float seen =
        GroupedConsumer<Shape, kGptq, kPaired>(launch, memory, barriers, factor).run();
    if constexpr (kPaired) {
      if (!activation.settles) store_cta_absmax<Shape>(seen, &largest, activation.largest);
    }
  }
  // No CTA of a cluster exits while another may still write to it or arrive at its barriers.
  __syncwarp();
  cluster_arrive();
  cluster_wait();
#endif
}

using GroupedKernel = void (*)(WgmmaGroupedLaunch, CUtensorMap);

template <class Shape>
GroupedKernel kernel_of(const WgmmaGroupedArgs& args) {
  if (args.gptq) {
    return args.activates() ? gemm_wgmma_grouped_kernel<Shape, true, true>
                            : gemm_wgmma_grouped_kernel<Shape, true, false>;
  }
  return args.activates() ? gemm_wgmma_grouped_kernel<Shape, false, true>
                          : gemm_wgmma_grouped_kernel<Shape, false, false>;
}

template <class Shape>
void start(ExecContext& ctx, const WgmmaGroupedPlan& plan) {
  const WgmmaGroupedArgs& args = plan.launch.args;
  ArenaScope scope(*ctx.scratch);
  const CUtensorMap rows =
      half_rows_map(reinterpret_cast<const std::byte*>(args.rows), args.k_steps * kKStepSize,
                    args.row_count, Shape::kRows / Shape::kCluster);
  const GroupedKernel kernel = kernel_of<Shape>(args);
  BL_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.bytes));
  const int clusters = cuda_device(ctx).facts().multiprocessors / Shape::kCluster;
  LaunchShape shape = shape_of(ctx, dim3(static_cast<unsigned>(clusters * Shape::kCluster)),
                               Shape::kThreads, static_cast<std::size_t>(plan.bytes));
  shape.cluster = Shape::kCluster;
  WgmmaGroupedLaunch launch_args = plan.launch;
  WgmmaActivation& activation = launch_args.args.activation;
  if (args.activates()) activation.largest = ctx.scratch->take_f32({shape.grid.x}).as<float>();
  launch(shape, kernel, launch_args, rows);
  if (args.activates()) {
    activation.settles = true;
    launch(shape, kernel, launch_args, rows);
  }
}

}  // namespace

void gemm_wgmma_grouped(ExecContext& ctx, const WgmmaGroupedPlan& plan) {
  with_grouped_shape(plan.launch.args.tile_rows,
                     [&]<class Shape>(Shape) { start<Shape>(ctx, plan); });
}

}  // namespace bl::cuda
