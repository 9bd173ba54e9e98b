#pragma once
// How rows of 16-bit activations are written: a CTA has a row in shared memory, in the order of
// features, and stores it in the order of k.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/half_pair.cuh"
#include "backend/cuda/device/warp_reduce.cuh"
#include "backend/cuda/gemm/activations/act_f16.h"

namespace bl::cuda {

inline constexpr int kActF16Threads = 256;
// Rows (CTAs) that a multiprocessor should have in flight: these kernels wait for memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr int kActF16Ctas = 4;
#else
inline constexpr int kActF16Ctas = 6;
#endif
// The largest element of all rows is scaled to [2^13, 2^14).
inline constexpr int kLargestExponent = 13;

// Rows whose largest element is within these bounds are not scaled: far from overflow, and whatever
// matters beside the largest is far from subnormals.
inline constexpr float kSmallestUnscaled = 0x1p-6f;
inline constexpr float kLargestUnscaled = 0x1p15f;

// Returns what rows have to be divided by that were stored before their largest element was known.
__device__ __forceinline__ float settled_act_scale(float largest) {
  const bool fits = largest >= kSmallestUnscaled && largest <= kLargestUnscaled;
  return fits ? 1.0f : power_of_two_for(largest, kLargestExponent);
}

__device__ __forceinline__ std::uint32_t bfloat_pair(float a, float b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Stores a row in the order of `to`. k is a multiple of eight; `staged` must be complete.
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

// Two rows of halves are interleaved: the low half of a word belongs to the first row. So one
// lookup of the permutation and one access to shared memory serve both.
__device__ __forceinline__ std::uint32_t low_halves(std::uint32_t a, std::uint32_t b) {
  return __byte_perm(a, b, 0x5410);
}
__device__ __forceinline__ std::uint32_t high_halves(std::uint32_t a, std::uint32_t b) {
  return __byte_perm(a, b, 0x7632);
}

// Interleaves four elements of each row, in order.
__device__ __forceinline__ uint4 side_by_side(const uint2& a, const uint2& b) {
  return {low_halves(a.x, b.x), high_halves(a.x, b.x), low_halves(a.y, b.y), high_halves(a.y, b.y)};
}

// Interleaves eight elements of each row into eight words.
__device__ __forceinline__ void stage_eights(const uint4& a, const uint4& b, uint4* words) {
  words[0] = side_by_side({a.x, a.y}, {b.x, b.y});
  words[1] = side_by_side({a.z, a.w}, {b.z, b.w});
}

// The features at eight consecutive k.
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

// Stores two interleaved rows. `staged` must be complete. `to` has a permutation; `next` holds its
// first eight entries of this thread, so that the caller can load them before its barrier. An odd
// number of rows leaves the last pair without a second row.
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
