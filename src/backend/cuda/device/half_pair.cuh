#pragma once
// Two binary16 values as one word.

#include <cuda_fp16.h>

#include <cstdint>

namespace bl::cuda {

__device__ __forceinline__ std::uint32_t word_of(__half2 pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ __forceinline__ std::uint32_t pack_halves(float low, float high) {
  return word_of(__floats2half2_rn(low, high));
}

}  // namespace bl::cuda
