#pragma once
// vec.h on AVX2 and FMA: two registers per vector. With AVX-VNNI, dot() is one instruction per
// register.

#include <immintrin.h>

#include <cstdint>

namespace bl::cpu::BL_ISA {

// Lanes [0, n) of a 16-lane mask, as two registers.
struct LaneMask {
  __m256i low, high;
  explicit LaneMask(int n) {
    const __m256i count = _mm256_set1_epi32(n);
    low = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    high = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
  }
};

struct F32x16 {
  __m256 low, high;
  static F32x16 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F32x16 load_first(const float* p, int n) {
    const LaneMask mask(n);
    return {_mm256_maskload_ps(p, mask.low), _mm256_maskload_ps(p + 8, mask.high)};
  }
  static F32x16 load_half(const void* p) {
    const auto* half = static_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(half)), _mm256_cvtph_ps(_mm_loadu_si128(half + 1))};
  }
  static F32x16 load_half_first(const void* p, int n) {
    const Words words(p, n);
    return load_half(words.bits);
  }
  static F32x16 load_bfloat(const void* p) {
    const auto* half = static_cast<const __m128i*>(p);
    return {widen_bfloat(_mm_loadu_si128(half)), widen_bfloat(_mm_loadu_si128(half + 1))};
  }
  static F32x16 load_bfloat_first(const void* p, int n) {
    const Words words(p, n);
    return load_bfloat(words.bits);
  }
  static F32x16 gather(const float* base, const std::int32_t* index) {
    return {gather8(base, index), gather8(base, index + 8)};
  }
  void store(float* p) const {
    _mm256_storeu_ps(p, low);
    _mm256_storeu_ps(p + 8, high);
  }
  void store_first(float* p, int n) const {
    const LaneMask mask(n);
    _mm256_maskstore_ps(p, mask.low, low);
    _mm256_maskstore_ps(p + 8, mask.high, high);
  }

 private:
  struct Words {
    alignas(32) std::uint16_t bits[16] = {};
    Words(const void* p, int n) { __builtin_memcpy(bits, p, static_cast<std::size_t>(n) * 2); }
  };
  static __m256 widen_bfloat(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static __m256 gather8(const float* base, const std::int32_t* index) {
    const __m256i i = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index));
    const __m256i valid = _mm256_cmpgt_epi32(i, _mm256_set1_epi32(-1));
    return _mm256_mask_i32gather_ps(_mm256_setzero_ps(), base, i, _mm256_castsi256_ps(valid), 4);
  }
};

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline float sum(F32x16 a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
// out[i] = sum(a_i) for four vectors.
inline void sum_four(F32x16 a0, F32x16 a1, F32x16 a2, F32x16 a3, float* out) {
  out[0] = sum(a0);
  out[1] = sum(a1);
  out[2] = sum(a2);
  out[3] = sum(a3);
}

struct I32x16 {
  __m256i low, high;
  static I32x16 zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static I32x16 splat(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static I32x16 load(const std::int32_t* p) {
    const auto* v = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
  }
  static I32x16 load_bytes(const std::uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static I32x16 load_words(const std::uint16_t* p) {
    const auto* words = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtepu16_epi32(_mm_loadu_si128(words)),
            _mm256_cvtepu16_epi32(_mm_loadu_si128(words + 1))};
  }
};

inline I32x16 operator+(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline I32x16 operator-(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
inline I32x16 operator*(I32x16 a, I32x16 b) {
  return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
template <int n>
I32x16 shift_left(I32x16 a) {
  return {_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)};
}
inline I32x16 max(I32x16 a, I32x16 b) {
  return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
}
inline std::int32_t sum(I32x16 a) {
  const __m256i eight = _mm256_add_epi32(a.low, a.high);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
inline std::int32_t max_lane(I32x16 a) {
  const __m256i eight = _mm256_max_epi32(a.low, a.high);
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
inline F32x16 to_float(I32x16 a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
inline I32x16 round_to_int(F32x16 a) {
  return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}
inline I32x16 abs_bits(F32x16 a) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  return {_mm256_and_si256(_mm256_castps_si256(a.low), mask),
          _mm256_and_si256(_mm256_castps_si256(a.high), mask)};
}

// See vec_avx512.h.
inline void store_pairs(I32x16 a, std::int16_t* p) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8));
}

struct I16x32 {
  __m256i low, high;
  static I16x32 load(const void* p) {
    const auto* v = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
  }
  static I16x32 splat(int word) {
    const __m256i v = _mm256_set1_epi16(static_cast<short>(word));
    return {v, v};
  }
  static I16x32 splat_pair(const std::int16_t* p) {
    std::int32_t pair;
    __builtin_memcpy(&pair, p, 4);
    const __m256i v = _mm256_set1_epi32(pair);
    return {v, v};
  }
  void store(void* p) const {
    auto* v = static_cast<__m256i*>(p);
    _mm256_storeu_si256(v, low);
    _mm256_storeu_si256(v + 1, high);
  }
};

template <int n>
I16x32 shift(I16x32 a) {
  if constexpr (n > 0) return {_mm256_srli_epi16(a.low, n), _mm256_srli_epi16(a.high, n)};
  if constexpr (n < 0) return {_mm256_slli_epi16(a.low, -n), _mm256_slli_epi16(a.high, -n)};
  return a;
}
inline I16x32 operator&(I16x32 a, I16x32 b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
// a | (b & mask)
inline I16x32 or_masked(I16x32 a, I16x32 b, I16x32 mask) {
  return {_mm256_or_si256(a.low, _mm256_and_si256(b.low, mask.low)),
          _mm256_or_si256(a.high, _mm256_and_si256(b.high, mask.high))};
}

inline __m256i dot8(__m256i acc, __m256i a, __m256i b) {
#if defined(__AVXVNNI__)
  return _mm256_dpwssd_avx_epi32(acc, a, b);
#else
  __m256i sum = _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
  // Forces the sum into a register here. Otherwise GCC computes all products of a block first,
  // keeps them in memory, and adds them up in another order.
  asm("" : "+x"(sum));
  return sum;
#endif
}
inline I32x16 dot(I32x16 acc, I16x32 a, I16x32 b) {
  return {dot8(acc.low, a.low, b.low), dot8(acc.high, a.high, b.high)};
}

// table[index & 15] in each lane: both halves are looked up, and bit 3 chooses.
inline __m256 select8(__m256i index, F32x16 table) {
  const __m256 low = _mm256_permutevar8x32_ps(table.low, index);
  const __m256 high = _mm256_permutevar8x32_ps(table.high, index);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}

inline F32x16 select_scales(const std::uint8_t* nibbles, F32x16 table) {
  std::int64_t bytes;
  __builtin_memcpy(&bytes, nibbles, 8);
  const __m256i all = _mm256_set1_epi64x(bytes);
  const __m256i low = _mm256_srlv_epi32(all, _mm256_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12));
  const __m256i high = _mm256_srlv_epi32(all, _mm256_setr_epi32(16, 16, 20, 20, 24, 24, 28, 28));
  return {select8(low, table), select8(high, table)};
}

}  // namespace bl::cpu::BL_ISA
