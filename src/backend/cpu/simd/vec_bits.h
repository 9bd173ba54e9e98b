#pragma once
// Functions that attention and element-wise kernels need beyond vec.h, on the same sixteen lanes:
//
//   a / b, min(a, b), max_lane(F32x16), select_less(a, b, x, y) = a < b ? x : y in each lane
//   swap_lanes<h>(v): lane l gets lane l ^ h, h in {1, 2, 4, 8}
//   as_float, as_int: reinterpret the bits
//   I32x16 a & b, shift_right<n> (shifts zeros in)
//   store_bytes(q, p): sixteen lanes of 0 … 255; store_half(v, p): binary16, round to nearest even
//   load_e4m3(p), store_e4m3(v, p): E4M3 as in ops/kv_codec.h
//   minus_quarter_turns(x, n) = x − n · π/2, accurate to the last place for |n| < 2^22
//   sqrt_lane(x)
//
// store_half and store_e4m3 saturate at ±65504 and ±448.

#include "backend/cpu/simd/vec.h"

namespace bl::cpu::BL_ISA {

inline F32x16 as_float(I32x16 a) { return __builtin_bit_cast(F32x16, a); }
inline I32x16 as_int(F32x16 a) { return __builtin_bit_cast(I32x16, a); }

}  // namespace bl::cpu::BL_ISA

#if defined(__AVX2__)  // also for all that have AVX-512

namespace bl::cpu::BL_ISA {

// Returns sixteen codes as binary16 numbers that are 2^8 times too small.
inline __m256i halves_of_e4m3(const std::uint8_t* p) {
  const __m256i code = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i magnitude = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x7f)), 7);
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x80)), 8);
  return _mm256_or_si256(magnitude, sign);
}
// Subtracts n times three parts of π/2; the first product is exact, since it is fused.
inline F32x16 minus_quarter_turns(F32x16 x, F32x16 n) {
  F32x16 r = fma(n, F32x16::splat(-1.57079637f), x);
  r = fma(n, F32x16::splat(4.37113883e-8f), r);
  return fma(n, F32x16::splat(1.71512451e-15f), r);
}
inline float sqrt_lane(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

}  // namespace bl::cpu::BL_ISA

#endif

#if defined(__AVX512F__)

namespace bl::cpu::BL_ISA {

inline F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline float max_lane(F32x16 a) { return _mm512_reduce_max_ps(a.v); }
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
template <int h>
F32x16 swap_lanes(F32x16 a) {
  if constexpr (h == 1) return {_mm512_permute_ps(a.v, 0xb1)};
  if constexpr (h == 2) return {_mm512_permute_ps(a.v, 0x4e)};
  if constexpr (h == 4) return {_mm512_shuffle_f32x4(a.v, a.v, 0xb1)};
  if constexpr (h == 8) return {_mm512_shuffle_f32x4(a.v, a.v, 0x4e)};
}
inline I32x16 operator&(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
template <int n>
I32x16 shift_right(I32x16 a) {
  return {_mm512_srli_epi32(a.v, n)};
}
inline void store_bytes(I32x16 a, std::uint8_t* p) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
inline void store_half(F32x16 a, void* p) {
  const F32x16 bounded = min(max(a, F32x16::splat(-65504.0f)), F32x16::splat(65504.0f));
  _mm256_storeu_si256(static_cast<__m256i*>(p),
                      _mm512_cvtps_ph(bounded.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// The bits of a code, shifted, are those of a binary16 number that is 2^8 times smaller.
inline F32x16 load_e4m3(const std::uint8_t* p) {
  return F32x16{_mm512_cvtph_ps(halves_of_e4m3(p))} * F32x16::splat(256.0f);
}

}  // namespace bl::cpu::BL_ISA

#elif defined(__AVX2__)

namespace bl::cpu::BL_ISA {

inline F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline float max_lane(F32x16 a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
template <int h>
F32x16 swap_lanes(F32x16 a) {
  if constexpr (h == 1) return {_mm256_permute_ps(a.low, 0xb1), _mm256_permute_ps(a.high, 0xb1)};
  if constexpr (h == 2) return {_mm256_permute_ps(a.low, 0x4e), _mm256_permute_ps(a.high, 0x4e)};
  if constexpr (h == 4) {
    return {_mm256_permute2f128_ps(a.low, a.low, 1), _mm256_permute2f128_ps(a.high, a.high, 1)};
  }
  if constexpr (h == 8) return {a.high, a.low};
}
inline I32x16 operator&(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
template <int n>
I32x16 shift_right(I32x16 a) {
  return {_mm256_srli_epi32(a.low, n), _mm256_srli_epi32(a.high, n)};
}
inline void store_bytes(I32x16 a, std::uint8_t* p) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
inline void store_half(F32x16 a, void* p) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const F32x16 bounded = min(max(a, F32x16::splat(-65504.0f)), F32x16::splat(65504.0f));
  auto* half = static_cast<__m128i*>(p);
  _mm_storeu_si128(half, _mm256_cvtps_ph(bounded.low, kNearest));
  _mm_storeu_si128(half + 1, _mm256_cvtps_ph(bounded.high, kNearest));
}
inline F32x16 load_e4m3(const std::uint8_t* p) {
  const __m256i half = halves_of_e4m3(p);
  return F32x16{_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
                _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))} *
         F32x16::splat(256.0f);
}

}  // namespace bl::cpu::BL_ISA

#else

namespace bl::cpu::BL_ISA {

inline F32x16 operator/(F32x16 a, F32x16 b) {
  return F32x16::make([&](int i) { return a.v[i] / b.v[i]; });
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return F32x16::make([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline float max_lane(F32x16 a) {
  float best = a.v[0];
  for (int i = 1; i < 16; ++i) best = a.v[i] > best ? a.v[i] : best;
  return best;
}
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return F32x16::make([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
}
template <int h>
F32x16 swap_lanes(F32x16 a) {
  return F32x16::make([&](int i) { return a.v[i ^ h]; });
}
inline I32x16 operator&(I32x16 a, I32x16 b) {
  return I32x16::make([&](int i) { return a.v[i] & b.v[i]; });
}
template <int n>
I32x16 shift_right(I32x16 a) {
  return I32x16::make(
      [&](int i) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) >> n); });
}
inline void store_bytes(I32x16 a, std::uint8_t* p) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<std::uint8_t>(a.v[i]);
}
// Rounds to nearest even, with gradual underflow. Requires |x| ≤ 65504 or NaN.
inline std::uint16_t half_of_float(float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude < 0x38800000u) {
    // Adding 0.5 makes the float addition round at the right bit.
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign |
                                      (__builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000u));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<std::uint16_t>(sign | ((magnitude + 0xc8000fffu + odd) >> 13));
}
inline void store_half(F32x16 a, void* p) {
  const F32x16 bounded = min(max(a, F32x16::splat(-65504.0f)), F32x16::splat(65504.0f));
  for (int i = 0; i < 16; ++i) {
    const std::uint16_t half = half_of_float(bounded.v[i]);
    __builtin_memcpy(static_cast<char*>(p) + 2 * i, &half, 2);
  }
}
inline F32x16 load_e4m3(const std::uint8_t* p) {
  return F32x16::make([&](int i) {
    const auto half = static_cast<std::uint16_t>((p[i] & 0x7fu) << 7 | (p[i] & 0x80u) << 8);
    return float_of_half(half) * 256.0f;
  });
}
inline F32x16 minus_quarter_turns(F32x16 x, F32x16 n) {
  return F32x16::make([&](int i) {
    return static_cast<float>(static_cast<double>(x.v[i]) -
                              static_cast<double>(n.v[i]) * 1.57079632679489662);
  });
}
inline float sqrt_lane(float x) { return __builtin_sqrtf(x); }

}  // namespace bl::cpu::BL_ISA

#endif

namespace bl::cpu::BL_ISA {

// The integer steps of the scalar definition, on all lanes: computes the normal and the subnormal
// result, and selects one.
inline void store_e4m3(F32x16 a, std::uint8_t* p) {
  const I32x16 bits = as_int(a);
  const I32x16 sign = shift_right<24>(bits) & I32x16::splat(0x80);
  const F32x16 magnitude = min(as_float(bits & I32x16::splat(0x7fffffff)), F32x16::splat(448.0f));
  const I32x16 m = as_int(magnitude);
  const I32x16 odd = shift_right<20>(m) & I32x16::splat(1);
  const I32x16 normal = shift_right<20>(m + odd + I32x16::splat(0x7ffff - (120 << 23)));
  const I32x16 small = as_int(magnitude + F32x16::splat(16384.0f)) - I32x16::splat(0x46800000);
  const F32x16 chosen =
      select_less(magnitude, F32x16::splat(0x1p-6f), as_float(small), as_float(normal));
  store_bytes(as_int(chosen) + sign, p);
}

}  // namespace bl::cpu::BL_ISA
