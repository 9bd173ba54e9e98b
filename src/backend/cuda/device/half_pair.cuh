#pragma once
// Two binary16 values packed into one 32-bit register.

#include <cuda_fp16.h>

#include <cstdint>

namespace bl::cuda {

__device__ __forceinline__ std::uint32_t word_of(__half2 pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ __forceinline__ __half2 halves_of(std::uint32_t bits) {
  return *reinterpret_cast<const __half2*>(&bits);
}
__device__ __forceinline__ std::uint32_t pack_halves(float low, float high) {
  return word_of(__floats2half2_rn(low, high));
}

// Transposes an 8×8 matrix of binary16 of which each lane of the warp holds two neighbouring
// elements of a row (PTX ISA, movmatrix).
__device__ __forceinline__ std::uint32_t transposed(std::uint32_t pair) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  std::uint32_t other;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(pair));
  return other;
#else
  return pair;
#endif
}

}  // namespace bl::cuda
