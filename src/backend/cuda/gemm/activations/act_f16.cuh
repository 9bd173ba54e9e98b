#pragma once
// Rows of 16-bit activations, as the kernels that make them write them: a CTA has a row in shared
// memory and puts it into its places.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/activations/act_f16.h"

namespace bl::cuda {

inline constexpr int kActF16Threads = 256;
// Rows that a multiprocessor should have under way: what they wait for is memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr int kActF16Ctas = 4;
#else
inline constexpr int kActF16Ctas = 6;
#endif
inline constexpr int kLargestExponent = 13;  // the largest of all rows comes to [2^13, 2^14)

// Rows that are as large as this are left as they are: far from overflow, and what matters beside
// the largest is far from the subnormals.
inline constexpr float kSmallestOfUse = 0x1p-6f;
inline constexpr float kLargestOfUse = 0x1p15f;

// What rows are divided by that were written before the largest of all was known.
__device__ __forceinline__ float settled_act_scale(float largest) {
  const bool fits = largest >= kSmallestOfUse && largest <= kLargestOfUse;
  return fits ? 1.0f : power_of_two_for(largest, kLargestExponent);
}

__device__ __forceinline__ std::uint32_t bfloat_pair(float a, float b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Slots come in eights; `staged` is complete.
__device__ __forceinline__ void store_row16(const std::uint16_t* staged, const ActF16& to,
                                            std::int64_t row) {
  const int eights = static_cast<int>(to.k / 8);
  auto* out = static_cast<uint4*>(to.rows) + row * eights;
  if (to.feature_of_k == nullptr) {
    for (int i = static_cast<int>(threadIdx.x); i < eights; i += kActF16Threads) {
      out[i] = reinterpret_cast<const uint4*>(staged)[i];
    }
    return;
  }
  const auto* features = reinterpret_cast<const int4*>(to.feature_of_k);
  const auto at = [&](int feature) { return feature < 0 ? 0u : std::uint32_t{staged[feature]}; };
  for (int i = static_cast<int>(threadIdx.x); i < eights; i += kActF16Threads) {
    const int4 a = features[2 * i];
    const int4 b = features[2 * i + 1];
    out[i] = {at(a.x) | at(a.y) << 16, at(a.z) | at(a.w) << 16, at(b.x) | at(b.y) << 16,
              at(b.z) | at(b.w) << 16};
  }
}

// Two rows of halves side by side: the low half of a word is of the first. One look at the map and
// at a place of shared memory serves both.
__device__ __forceinline__ std::uint32_t low_halves(std::uint32_t a, std::uint32_t b) {
  return __byte_perm(a, b, 0x5410);
}
__device__ __forceinline__ std::uint32_t high_halves(std::uint32_t a, std::uint32_t b) {
  return __byte_perm(a, b, 0x7632);
}

// Four elements of each row, as they come.
__device__ __forceinline__ uint4 side_by_side(const uint2& a, const uint2& b) {
  return {low_halves(a.x, b.x), high_halves(a.x, b.x), low_halves(a.y, b.y), high_halves(a.y, b.y)};
}

// Eight elements of each row to eight words.
__device__ __forceinline__ void stage_eights(const uint4& a, const uint4& b, uint4* words) {
  words[0] = side_by_side({a.x, a.y}, {b.x, b.y});
  words[1] = side_by_side({a.z, a.w}, {b.z, b.w});
}

// Which channels eight slots hold.
struct EightFeatures {
  int4 low{};
  int4 high{};
  __device__ __forceinline__ void load(const ActF16& to, int eight) {
    if (eight >= to.k / 8) return;
    const auto* features = reinterpret_cast<const int4*>(to.feature_of_k);
    low = features[2 * eight];
    high = features[2 * eight + 1];
  }
};

// `staged` is complete; `to` has a map, of which `next` has this thread's first eight: who asks for
// them before the barrier has them behind it. Of the last pair there may be no second row.
template <int Threads>
__device__ __forceinline__ void store_row_pair(const std::uint32_t* staged, const ActF16& to,
                                               std::int64_t first, bool has_second,
                                               EightFeatures next) {
  const int eights = static_cast<int>(to.k / 8);
  auto* out = static_cast<uint4*>(to.rows) + first * eights;
  const auto at = [&](int feature) { return feature < 0 ? 0u : staged[feature]; };
  for (int i = static_cast<int>(threadIdx.x); i < eights; i += Threads) {
    const EightFeatures own = next;
    next.load(to, i + Threads);
    const std::uint32_t v[8] = {at(own.low.x),  at(own.low.y),  at(own.low.z),  at(own.low.w),
                                at(own.high.x), at(own.high.y), at(own.high.z), at(own.high.w)};
    out[i] = {low_halves(v[0], v[1]), low_halves(v[2], v[3]), low_halves(v[4], v[5]),
              low_halves(v[6], v[7])};
    if (has_second) {
      out[eights + i] = {high_halves(v[0], v[1]), high_halves(v[2], v[3]), high_halves(v[4], v[5]),
                         high_halves(v[6], v[7])};
    }
  }
}

}  // namespace bl::cuda
