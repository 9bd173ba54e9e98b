#pragma once
// The number formats of rows of the KV cache, complete. kv_codec.cc is the scalar definition. A
// faster version in a backend must produce the same bytes; this comment is enough to write one.
//
// Arithmetic is in float. Each operation is rounded to nearest even, and nothing is fused where the
// text says "unfused"; divisions are correctly rounded. RN16(x) is x as binary16: rounded to
// nearest even, subnormals kept, saturated at ±65504. Binary16 and float are stored little-endian.
//
// kF32 and kF16 store element e at index e; kF16 stores RN16(x).
//
// kE4M3 stores one byte per element: sign, 4 exponent bits (bias 7), 3 mantissa bits; rounded to
// nearest even, subnormals kept, saturated at ±448 (codes 0x7f and 0xff are never written).
//
// kInt stores codes of b = 2 … 8 bits. The row is rotated (rotate_kv_head) and then cut into groups
// of 32 elements; the last group may have fewer, g elements. The bytes of a row are
//
//   codes of group 0 | codes of group 1 | … | scale of group 0 | scale of group 1 | …
//
// A whole group has 4b bytes of codes. Each group has a binary16 scale, which may be negative. With
// h = 2^(b−1), the value of an element is (n − h) · scale with n in 0 … 2h − 1. The grid reaches
// one step further on one side; the sign of the scale chooses which.
//
// Packing. The bits of n are cut into planes of w = 8, 4, 2 and 1 bits: those widths that add up to
// b, the widest plane first and with the lowest bits. A plane has s = ⌈g · w / 8⌉ bytes; byte i
// holds the bits of elements i + j · s, j = 0 … 8/w − 1, in its bits w · j … w · j + w − 1. So 8
// bits are one byte per element; 4 bits are nibbles of elements i and i + ⌈g/2⌉; 6 bits are such
// nibbles followed by ⌈g/4⌉ bytes with the upper two bits of four elements each; 7 bits are these
// followed by ⌈g/8⌉ bytes with the highest bit of eight elements each. Elements that a short group
// lacks are packed as n = h.
//
// In a whole group, the bits of four neighboring elements are in one 32-bit word of each plane, at
// the same bits of its four bytes: elements 4u … 4u + 3 are in word u mod w of the plane's w words,
// from bit w · ⌊u / w⌋ of each byte on. For 6 bits, with L the low-plane word u (u = 0 … 3) and H
// the high-plane word u mod 2, elements 4u … 4u + 3 are the bytes of
//   (L & 0x0f0f0f0f) | (H >> 2⌊u/2⌋ & 0x03030303) << 4
// and the elements 16 further on are the bytes of
//   (L >> 4 & 0x0f0f0f0f) | (H >> (4 + 2⌊u/2⌋) & 0x03030303) << 4
//
// Codes. With inverse = 1 / scale (0 if the scale is 0), n = h + rint(min(max(y · inverse, −h), h −
// 1)), rint rounding to even.
//
// Scale, 6 bits and more: RN16(x / −h), x being the element of the largest magnitude (the negative
// one if both signs have it), so that nothing saturates.
//
// Scale, up to 5 bits: with A the largest magnitude and d0 … d3 the divisors of kv_scale_divisor(),
// the candidates are RN16(A / d0), RN16(A / −d0), RN16(A / d1), …; the one with the least squared
// error wins, the first among equals. The error of an element is e = y − (n − h) · scale (the
// product is exact). Squares are summed unfused: first e² of elements l and l + 16, then these sums
// of l and l + 8, l + 4, l + 2, l + 1, as five exchanges between 32 lanes at distances 16, 8, 4, 2,
// 1 give it. Elements that a short group lacks count as 0. A group of zeros has scale +0 and codes
// n = h.
//
// Input that is not finite gives some finite row, never undefined behavior.

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "ops/kv_layout.h"

namespace bl {

// For codes of at most kKvSearchedBits bits, the best of 2 · kKvScaleDivisors scales is searched.
inline constexpr int kKvSearchedBits = 5;
inline constexpr int kKvScaleDivisors = 4;
// Divisor i for codes of `bits` bits: h first, then the ones that reduce the error of Gaussian
// groups most (docs/adr/0032). The fewer codes there are, the more it pays to clip the extreme
// element.
BL_HD constexpr float kv_scale_divisor(int bits, int i) {
  if (bits == 4) return i == 0 ? 8.0f : i == 1 ? 8.5f : i == 2 ? 7.5f : 7.0f;
  if (bits == 2) return i == 0 ? 2.0f : i == 1 ? 2.25f : i == 2 ? 2.5f : 2.875f;
  if (bits == 3) return i == 0 ? 4.0f : i == 1 ? 4.25f : i == 2 ? 3.75f : 4.75f;
  return i == 0 ? 16.0f : i == 1 ? 16.5f : i == 2 ? 15.75f : 15.0f;
}

// kE4M3 codes of one element, as above.
std::uint8_t float_to_e4m3(float value);
float e4m3_to_float(std::uint8_t code);

// Applies an orthonormal, symmetric transform (its own inverse) to one head's vector in place, to
// each scale group separately: an outlier then raises only the scale of its own group, which costs
// less than spreading it over the head (docs/adr/0011). Let a group have m · p elements, p being
// the largest power of two that divides its size. Each run of p gets a Walsh–Hadamard transform:
// butterflies of stride 1, 2, 4, …, (a, b) → (a + b, a − b), then times 1/√p (the nearest float).
// For m > 1 a reflection across the m runs follows, x_r − (2/m) Σ_s x_s, the sum in order from 0,
// unfused.
void rotate_kv_head(float* x, int dim);

// Encodes `x` [row.dim], in the model's basis, to `bytes` [row.bytes()].
void encode_kv_row(const KvRow& row, const float* x, std::byte* bytes);

// Decodes a row to `x` [row.dim]; the result is still rotated if row.rotated().
void decode_kv_row(const KvRow& row, const std::byte* bytes, float* x);

}  // namespace bl
