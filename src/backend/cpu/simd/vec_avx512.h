#pragma once
// vec.h on AVX-512: one register per vector.

#include <immintrin.h>

#include <cstdint>

namespace bl::cpu::BL_ISA {

struct F32x16 {
  __m512 v;
  static F32x16 splat(float x) { return {_mm512_set1_ps(x)}; }
  static F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static F32x16 load_first(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
  static F32x16 load_half(const void* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
  }
  static F32x16 load_half_first(const void* p, int n) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p))};
  }
  static F32x16 load_bfloat(const void* p) {
    return widen_bfloat(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static F32x16 load_bfloat_first(const void* p, int n) {
    return widen_bfloat(_mm256_maskz_loadu_epi16(first(n), p));
  }
  static F32x16 gather(const float* base, const std::int32_t* index) {
    const __m512i i = _mm512_loadu_si512(index);
    const __mmask16 valid = _mm512_cmpge_epi32_mask(i, _mm512_setzero_si512());
    return {_mm512_mask_i32gather_ps(_mm512_setzero_ps(), valid, i, base, 4)};
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store_first(float* p, int n) const { _mm512_mask_storeu_ps(p, first(n), v); }

 private:
  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static F32x16 widen_bfloat(__m256i bits) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
};

inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline float sum(F32x16 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

// out[i] = sum(a_i) for four vectors, to the bit, in less than half of the instructions.
inline void sum_four(F32x16 a0, F32x16 a1, F32x16 a2, F32x16 a3, float* out) {
  const auto halves = [](__m512 x, __m512 y) {  // both halves of x, then of y, added up
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  };
  const __m512 low = halves(a0.v, a1.v), high = halves(a2.v, a3.v);
  __m512 four =
      _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xdd));
  four = _mm512_add_ps(four, _mm512_permute_ps(four, 0x4e));
  four = _mm512_add_ps(four, _mm512_permute_ps(four, 0xb1));
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, four)));
}

struct I32x16 {
  __m512i v;
  static I32x16 zero() { return {_mm512_setzero_si512()}; }
  static I32x16 splat(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
  static I32x16 load(const std::int32_t* p) { return {_mm512_loadu_si512(p)}; }
  static I32x16 load_bytes(const std::uint8_t* p) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  static I32x16 load_words(const std::uint16_t* p) {
    return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
};

inline I32x16 operator+(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I32x16 operator-(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline I32x16 operator*(I32x16 a, I32x16 b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
template <int n>
I32x16 shift_left(I32x16 a) {
  return {_mm512_slli_epi32(a.v, n)};
}
inline I32x16 max(I32x16 a, I32x16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
inline std::int32_t sum(I32x16 a) { return _mm512_reduce_add_epi32(a.v); }
inline std::int32_t max_lane(I32x16 a) { return _mm512_reduce_max_epi32(a.v); }
inline F32x16 to_float(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline I32x16 round_to_int(F32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }
inline I32x16 abs_bits(F32x16 a) {
  return {_mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7fffffff))};
}

// Stores sixteen words; every four lanes are stored in the order 0, 2, 1, 3.
inline void store_pairs(I32x16 a, std::int16_t* p) {
  const __m256i words = _mm512_cvtepi32_epi16(a.v);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8));
}

struct I16x32 {
  __m512i v;
  static I16x32 load(const void* p) { return {_mm512_loadu_si512(p)}; }
  static I16x32 splat(int word) { return {_mm512_set1_epi16(static_cast<short>(word))}; }
  static I16x32 splat_pair(const std::int16_t* p) {
    std::int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    return {_mm512_set1_epi32(pair)};
  }
  void store(void* p) const { _mm512_storeu_si512(p, v); }
};

template <int n>
I16x32 shift(I16x32 a) {
  if constexpr (n > 0) return {_mm512_srli_epi16(a.v, n)};
  if constexpr (n < 0) return {_mm512_slli_epi16(a.v, -n)};
  return a;
}
inline I16x32 operator&(I16x32 a, I16x32 b) { return {_mm512_and_si512(a.v, b.v)}; }
// a | (b & mask)
inline I16x32 or_masked(I16x32 a, I16x32 b, I16x32 mask) {
  return {_mm512_ternarylogic_epi32(a.v, b.v, mask.v, 0xf8)};
}

inline I32x16 dot(I32x16 acc, I16x32 a, I16x32 b) { return {_mm512_dpwssd_epi32(acc.v, a.v, b.v)}; }

inline F32x16 select_scales(const std::uint8_t* nibbles, F32x16 table) {
  std::int64_t bytes;
  __builtin_memcpy(&bytes, nibbles, 8);
  const __m512i shifts =
      _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
  const __m512i index = _mm512_srlv_epi32(_mm512_set1_epi64(bytes), shifts);
  return {_mm512_permutexvar_ps(index, table.v)};  // reads four bits of each index
}

}  // namespace bl::cpu::BL_ISA
