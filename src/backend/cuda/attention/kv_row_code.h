#pragma once
// The arithmetic of KV cache rows (ops/kv_codec.h) for one thread, on host and device: it gives the
// same bytes and numbers as ops/kv_codec.cc. What the 32 lanes of a warp do together is in
// kv_codec.cuh.

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/device_math.h"
#include "base/host_device.h"
#include "ops/kv_layout.h"

namespace bl::cuda {

// A KvRow with its sizes computed, as a kernel parameter.
struct RowShape {
  KvRow::Code code = KvRow::Code::kF32;
  int bits = 32;
  int dim = 0;
  int code_bytes = 0;
  int bytes = 0;
  int groups = 0;  // scale groups of 32 elements; the last may be shorter
};

inline RowShape row_shape(const KvRow& row) {
  return {row.code,
          row.bits,
          row.dim,
          static_cast<int>(row.code_bytes()),
          static_cast<int>(row.bytes()),
          (row.dim + kKvScaleGroup - 1) / kKvScaleGroup};
}

// The widths of integer codes that a function handles. Kernels for kUsual have no code for the
// others.
enum class Widths : std::uint8_t {
  kUsual,  // 8, 6 and 4 bits
  kAny,    // 2 … 8
};

inline Widths widths_of(const RowShape& shape) {
  const bool usual = shape.bits == 8 || shape.bits == 6 || shape.bits == 4;
  return shape.code != KvRow::Code::kInt || usual ? Widths::kUsual : Widths::kAny;
}
// The widths for kernels that handle both keys and values.
inline Widths widths_of(const RowShape& k, const RowShape& v) {
  return widths_of(k) == Widths::kAny ? Widths::kAny : widths_of(v);
}

// Stands for a CacheType in kernels whose integer widths are parameters at run time.
inline constexpr auto kAnyWidth = static_cast<CacheType>(0xff);

// RN16 of ops/kv_codec.h. NaN becomes −65504.
BL_HD inline std::uint16_t saturated_half(float value) {
  const float above = value > -65504.0f ? value : -65504.0f;
  return half_of_float(above < 65504.0f ? above : 65504.0f);
}

// Equals float_to_e4m3() of ops/kv_codec.h.
BL_HD inline std::uint8_t e4m3_of_float(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x43e00000u) return static_cast<std::uint8_t>(sign | 0x7eu);
  if (magnitude < 0x3c800000u) {
    // Subnormal, in steps of 2^-9. Adding 2^14, whose last bit has this step, rounds to it.
    const float shifted = exact_add(float_of_bits(magnitude), 16384.0f);
    return static_cast<std::uint8_t>(sign | (bits_of_float(shifted) - 0x46800000u));
  }
  const std::uint32_t odd = (magnitude >> 20) & 1u;
  const std::uint32_t rounded = magnitude + 0x7ffffu + odd - (120u << 23);
  return static_cast<std::uint8_t>(sign | (rounded >> 20));
}

// Exact. The code's bits in the place of a float's are too small by 2^120, subnormals included.
BL_HD inline float float_of_e4m3(std::uint8_t code) {
  const std::uint32_t c = code;
  return exact_mul(float_of_bits((c & 0x80u) << 24 | (c & 0x7fu) << 20), 0x1p120f);
}

// Returns the grid index of y minus h, −h … h − 1. NaN becomes the lowest.
BL_HD inline float grid_index(float y, float inverse, float half_levels) {
  const float t = exact_mul(y, inverse);
  const float above = t > -half_levels ? t : -half_levels;
  const float bounded = above < half_levels - 1.0f ? above : half_levels - 1.0f;
  // Adding 1.5 · 2^23 rounds to the nearest integer, ties to even.
  return exact_add(exact_add(bounded, 12582912.0f), -12582912.0f);
}

BL_HD inline float inverse_of(float step) { return step != 0.0f ? exact_div(1.0f, step) : 0.0f; }

// The codes n of elements 4w … 4w + 3 of a whole group, in the bytes of `near`, and of the elements
// 16 further on, in the bytes of `far`. `low` is word w of the plane of low bits.
struct CodeQuads {
  std::uint32_t near = 0;
  std::uint32_t far = 0;
};
BL_HD inline CodeQuads nibble_quads(std::uint32_t low) {
  return {low & 0x0f0f0f0fu, low >> 4 & 0x0f0f0f0fu};
}
// `high` is word w mod 2 of the plane of high bits, the 8 bytes behind the 16 bytes of low bits.
BL_HD inline CodeQuads six_bit_quads(std::uint32_t low, std::uint32_t high, int w) {
  const int shift = w / 2 * 2;
  return {(low & 0x0f0f0f0fu) | (high >> shift & 0x03030303u) << 4,
          (low >> 4 & 0x0f0f0f0fu) | (high >> (4 + shift) & 0x03030303u) << 4};
}

// The codes n of elements [8 · part, 8 · part + 8) of a whole group of any width, in the bytes of
// two words. word(i) returns 32-bit word i of the group, which has `bits` words.
struct EightCodes {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};
template <class Word>
BL_HD inline EightCodes eight_codes(int bits, int part, const Word& word) {
  EightCodes codes;
  int begin = 0;  // the number of words before the plane, and of bits below it
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int width = 8; width > 0; width /= 2) {
    if ((bits & width) == 0) continue;
    const std::uint32_t mask = 0x01010101u * ((1u << width) - 1u);
    const auto four = [&](int u) {
      return (word(begin + u % width) >> (width * (u / width)) & mask) << begin;
    };
    codes.first |= four(2 * part);
    codes.second |= four(2 * part + 1);
    begin += width;
  }
  return codes;
}

// Returns the number of elements of the group that begins at element `first`.
BL_HD inline int group_size(const RowShape& shape, int first) {
  const int left = shape.dim - first;
  return left < kKvScaleGroup ? left : kKvScaleGroup;
}

BL_HD inline std::uint16_t read_half(const std::byte* at) {  // any alignment
  return static_cast<std::uint16_t>(static_cast<unsigned>(at[0]) | static_cast<unsigned>(at[1])
                                                                       << 8);
}

// Returns code n of element i of an integer group of `count` elements.
template <Widths kWidths>
BL_HD inline int group_code(const std::byte* codes, int count, int bits, int i) {
  if constexpr (kWidths == Widths::kAny) {
    int n = 0;
    int lowest = 0;
    for (int width = 8; width > 0; width /= 2) {
      if ((bits & width) == 0) continue;
      const int bytes = (count * width + 7) / 8;
      const int joined = static_cast<int>(codes[i % bytes]) >> (width * (i / bytes));
      n |= (joined & ((1 << width) - 1)) << lowest;
      codes += bytes;
      lowest += width;
    }
    return n;
  }
  if (bits == 8) return static_cast<int>(codes[i]);
  const int half = (count + 1) / 2;
  const int n = i < half ? static_cast<int>(codes[i]) & 15 : static_cast<int>(codes[i - half]) >> 4;
  if (bits == 4) return n;
  const int quarter = (count + 3) / 4;
  return n | (static_cast<int>(codes[half + i % quarter]) >> (2 * (i / quarter)) & 3) << 4;
}

// Decodes element e of a row, without undoing the rotation of integer codes. It takes any format,
// size and alignment, and is slow.
template <Widths kWidths>
BL_HD inline float decode_element(const RowShape& shape, const std::byte* row, int e) {
  if (shape.code == KvRow::Code::kE4M3) return float_of_e4m3(static_cast<std::uint8_t>(row[e]));
  if (shape.code == KvRow::Code::kF16) return float_of_half(read_half(row + 2 * e));
  if (shape.code == KvRow::Code::kF32) {
    return float_of_bits(std::uint32_t{read_half(row + 4 * e)} |
                         std::uint32_t{read_half(row + 4 * e + 2)} << 16);
  }
  const int group = e / kKvScaleGroup;
  const int first = group * kKvScaleGroup;
  const int n = group_code<kWidths>(row + first / 8 * shape.bits, group_size(shape, first),
                                    shape.bits, e - first);
  const float scale = float_of_half(read_half(row + shape.code_bytes + 2 * group));
  return static_cast<float>(n - (1 << (shape.bits - 1))) * scale;
}

}  // namespace bl::cuda
