#pragma once
// The scale of activated rows: a launch stores them undivided and leaves each CTA's largest
// magnitude; a second launch repeats the tiles only if the rows have to be divided.

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/activations/act_f16.cuh"
#include "backend/cuda/gemm/wgmma/wgmma_plan.h"

namespace bl::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Returns what the rows have to be divided by: all CTAs of the launch before have stored rows and
// left their largest magnitude. Writes it to rows.act_scale.
__device__ __forceinline__ float act_scale_of_rows(const WgmmaActivation& rows,
                                                   float* warp_partials) {
  pdl_wait();
  float largest = 0.0f;
  for (auto i = static_cast<int>(threadIdx.x); i < static_cast<int>(gridDim.x);
       i += static_cast<int>(blockDim.x)) {
    largest = fmaxf(largest, rows.largest[i]);
  }
  const float act_scale = settled_act_scale(cta_max(largest, warp_partials));
  if (blockIdx.x == 0 && threadIdx.x == 0) *rows.act_scale = act_scale;
  return act_scale;
}

// Called by the consumer warps; thread 0 cleared `shared` before a barrier of the CTA.
template <class Shape>
__device__ __forceinline__ void store_cta_absmax(float largest, std::uint32_t* shared, float* to) {
  // The bits of non-negative floats have the order of the floats.
  const std::uint32_t bits = warp_max(__float_as_uint(largest));
  if (lane_index() == 0) atomicMax(shared, bits);
  asm volatile("bar.sync 15, %0;" ::"n"(Shape::kConsumers * 128) : "memory");
  if (warp_index() == 4 && lane_index() == 0) to[blockIdx.x] = __uint_as_float(*shared);
}

#endif

}  // namespace bl::cuda
