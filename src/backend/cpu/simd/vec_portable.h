#pragma once
// vec.h in plain C++: loops of constant length, which compilers vectorize as they can. fma() is not
// fused, because in software that would cost a hundred instructions.

#include <cstdint>

namespace bl::cpu::BL_ISA {

inline float float_of_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline float float_of_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of_bits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  // Multiplying by 2^112 corrects the exponent's bias and normalizes subnormals.
  const float value = float_of_bits(magnitude << 13) * 0x1p112f;
  return float_of_bits(sign | __builtin_bit_cast(std::uint32_t, value));
}

struct F32x16 {
  float v[16];
  template <class F>
  static F32x16 make(const F& lane) {
    F32x16 r;
    for (int i = 0; i < 16; ++i) r.v[i] = lane(i);
    return r;
  }
  static F32x16 splat(float x) {
    return make([=](int) { return x; });
  }
  // Here and below, pointers may be unaligned: weights in a mapped file can be at any address.
  static F32x16 load(const float* p) {
    F32x16 r;
    __builtin_memcpy(r.v, static_cast<const void*>(p), sizeof r.v);
    return r;
  }
  static F32x16 load_first(const float* p, int n) {
    F32x16 r = splat(0.0f);
    __builtin_memcpy(r.v, static_cast<const void*>(p), static_cast<unsigned>(n) * sizeof(float));
    return r;
  }
  static F32x16 load_half(const void* p) { return load_half_first(p, 16); }
  static F32x16 load_half_first(const void* p, int n) {
    return make([=](int i) { return i < n ? float_of_half(word(p, i)) : 0.0f; });
  }
  static F32x16 load_bfloat(const void* p) { return load_bfloat_first(p, 16); }
  static F32x16 load_bfloat_first(const void* p, int n) {
    return make([=](int i) {
      return i < n ? float_of_bits(static_cast<std::uint32_t>(word(p, i)) << 16) : 0.0f;
    });
  }
  static F32x16 gather(const float* base, const std::int32_t* index) {
    return make([=](int i) { return index[i] < 0 ? 0.0f : base[index[i]]; });
  }
  void store(float* p) const { store_first(p, 16); }
  void store_first(float* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = v[i];
  }

 private:
  static std::uint16_t word(const void* p, int i) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, static_cast<const char*>(p) + 2 * i, 2);
    return bits;
  }
};

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return F32x16::make([&](int i) { return a.v[i] + b.v[i]; });
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return F32x16::make([&](int i) { return a.v[i] - b.v[i]; });
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return F32x16::make([&](int i) { return a.v[i] * b.v[i]; });
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return a * b + c; }
inline F32x16 max(F32x16 a, F32x16 b) {
  return F32x16::make([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline float sum(F32x16 a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  }
  return a.v[0];
}
// out[i] = sum(a_i) for four vectors.
inline void sum_four(F32x16 a0, F32x16 a1, F32x16 a2, F32x16 a3, float* out) {
  out[0] = sum(a0);
  out[1] = sum(a1);
  out[2] = sum(a2);
  out[3] = sum(a3);
}

struct I32x16 {
  std::int32_t v[16];
  template <class F>
  static I32x16 make(const F& lane) {
    I32x16 r;
    for (int i = 0; i < 16; ++i) r.v[i] = lane(i);
    return r;
  }
  static I32x16 zero() { return splat(0); }
  static I32x16 splat(std::int32_t x) {
    return make([=](int) { return x; });
  }
  static I32x16 load(const std::int32_t* p) {
    return make([=](int i) { return p[i]; });
  }
  static I32x16 load_bytes(const std::uint8_t* p) {
    return make([=](int i) { return p[i]; });
  }
  static I32x16 load_words(const std::uint16_t* p) {
    return make([=](int i) { return p[i]; });
  }
};

inline I32x16 operator+(I32x16 a, I32x16 b) {
  return I32x16::make([&](int i) { return a.v[i] + b.v[i]; });
}
inline I32x16 operator-(I32x16 a, I32x16 b) {
  return I32x16::make([&](int i) { return a.v[i] - b.v[i]; });
}
inline I32x16 operator*(I32x16 a, I32x16 b) {
  return I32x16::make([&](int i) { return a.v[i] * b.v[i]; });
}
template <int n>
I32x16 shift_left(I32x16 a) {
  return a * I32x16::splat(1 << n);
}
inline I32x16 max(I32x16 a, I32x16 b) {
  return I32x16::make([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline std::int32_t sum(I32x16 a) {
  std::int32_t total = 0;
  for (int i = 0; i < 16; ++i) total += a.v[i];
  return total;
}
inline std::int32_t max_lane(I32x16 a) {
  std::int32_t best = a.v[0];
  for (int i = 1; i < 16; ++i) best = a.v[i] > best ? a.v[i] : best;
  return best;
}
inline F32x16 to_float(I32x16 a) {
  return F32x16::make([&](int i) { return static_cast<float>(a.v[i]); });
}
// Rounds to nearest even by adding a number that leaves no fraction bits. Requires |a| < 2^22.
inline I32x16 round_to_int(F32x16 a) {
  return I32x16::make([&](int i) {
    const float shifted = a.v[i] + 0x1.8p23f;
    return __builtin_bit_cast(std::int32_t, shifted) - 0x4b400000;
  });
}
inline I32x16 abs_bits(F32x16 a) {
  return I32x16::make([&](int i) { return __builtin_bit_cast(std::int32_t, a.v[i]) & 0x7fffffff; });
}

// See vec_avx512.h.
inline void store_pairs(I32x16 a, std::int16_t* p) {
  for (int i = 0; i < 16; i += 4) {
    p[i] = static_cast<std::int16_t>(a.v[i]);
    p[i + 1] = static_cast<std::int16_t>(a.v[i + 2]);
    p[i + 2] = static_cast<std::int16_t>(a.v[i + 1]);
    p[i + 3] = static_cast<std::int16_t>(a.v[i + 3]);
  }
}

struct I16x32 {
  std::int16_t v[32];
  template <class F>
  static I16x32 make(const F& f) {
    I16x32 r;
    for (int i = 0; i < 32; ++i) r.v[i] = static_cast<std::int16_t>(f(i));
    return r;
  }
  static I16x32 load(const void* p) {
    I16x32 r;
    __builtin_memcpy(r.v, p, 64);
    return r;
  }
  static I16x32 splat(int word) {
    return make([=](int) { return word; });
  }
  static I16x32 splat_pair(const std::int16_t* p) {
    return make([=](int i) { return p[i % 2]; });
  }
  void store(void* p) const { __builtin_memcpy(p, v, 64); }
};

template <int n>
I16x32 shift(I16x32 a) {
  return I16x32::make([&](int i) {
    const auto word = static_cast<std::uint16_t>(a.v[i]);
    if constexpr (n >= 0) return word >> n;
    if constexpr (n < 0) return word << -n;
  });
}
inline I16x32 operator&(I16x32 a, I16x32 b) {
  return I16x32::make([&](int i) { return a.v[i] & b.v[i]; });
}
// a | (b & mask)
inline I16x32 or_masked(I16x32 a, I16x32 b, I16x32 mask) {
  return I16x32::make([&](int i) { return a.v[i] | (b.v[i] & mask.v[i]); });
}

inline I32x16 dot(I32x16 acc, I16x32 a, I16x32 b) {
  for (int i = 0; i < 16; ++i) {
    acc.v[i] += a.v[2 * i] * b.v[2 * i] + a.v[2 * i + 1] * b.v[2 * i + 1];
  }
  return acc;
}

inline F32x16 select_scales(const std::uint8_t* nibbles, F32x16 table) {
  return F32x16::make([&](int i) {
    const int position = nibble_position(i);
    return table.v[(nibbles[position / 2] >> (4 * (position % 2))) & 15];
  });
}

}  // namespace bl::cpu::BL_ISA
