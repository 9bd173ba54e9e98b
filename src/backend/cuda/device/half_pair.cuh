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

// The transpose of an 8×8 matrix of halves, of which each lane holds a pair.
__device__ __forceinline__ std::uint32_t transposed(std::uint32_t pair) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  std::uint32_t other;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(pair));
  return other;
#else
  return pair;
#endif
}
// The same of floats: a lane's two, a half at a time.
__device__ __forceinline__ float2 transposed(float first, float second) {
  const std::uint32_t a = __float_as_uint(first);
  const std::uint32_t b = __float_as_uint(second);
  const std::uint32_t low = transposed(__byte_perm(a, b, 0x5410));
  const std::uint32_t high = transposed(__byte_perm(a, b, 0x7632));
  return {__uint_as_float(__byte_perm(low, high, 0x5410)),
          __uint_as_float(__byte_perm(low, high, 0x7632))};
}

}  // namespace bl::cuda
