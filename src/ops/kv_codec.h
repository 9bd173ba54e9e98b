#pragma once
// Rows of the KV cache: the number formats, complete. kv_codec.cc is the scalar definition; a
// backend with a faster version must produce the same bytes, and can be written from this comment.
//
// Arithmetic is in float, each operation rounded to nearest even, nothing fused where it says
// "unfused"; divisions are correctly rounded. RN16(x): x as binary16, round to nearest even,
// subnormals kept, saturated at ±65504. Binary16 and float are stored little-endian.
//
// kF32, kF16: element e at index e; kF16 holds RN16(x).
// kE4M3: one byte an element: sign, 4 exponent bits (bias 7), 3 mantissa bits; round to nearest
//   even, subnormals kept, saturated at ±448 (codes 0x7f and 0xff are never written).
//
// kInt of b = 2 … 8 bits. The row is rotated (rotate_kv_head), then cut into groups of 32
// elements; the last may be shorter, g elements. The row's bytes are
//
//   codes of group 0 | codes of group 1 | … | scale of group 0 | scale of group 1 | …
//
// with 4b bytes of codes for a whole group and a binary16 scale each, which may be negative. With
// h = 2^(b−1), an element is (n − h) · scale, n in 0 … 2h − 1: the grid has one step more on one
// side, which the sign of the scale turns where it is wanted.
//
//   Packing. The bits of n are cut into planes of w = 8, 4, 2 and 1 bits, those that add up to b,
//   the widest of the lowest bits and first. A plane is s = ⌈g · w / 8⌉ bytes; byte i holds the
//   bits of elements i + j · s, j = 0 … 8/w − 1, in its bits w · j … w · j + w − 1. So 8 bits are a
//   byte an element; 4 bits nibbles of elements i and i + ⌈g/2⌉; 6 bits such nibbles, then ⌈g/4⌉
//   bytes with the high two bits of four elements each; 7 bits these, and ⌈g/8⌉ bytes with the
//   highest bit of eight. Bits of elements that a short group lacks are those of n = h.
//   In a whole group the bits of four neighbouring elements are in one 32-bit word of each plane,
//   the same bits of its four bytes: element e = 4u … 4u + 3 in word u mod v of the v = w words,
//   from bit w · ⌊u / v⌋ of a byte on. For 6 bits: bytes 4u … of the low part (u = 0 … 3) and 4(u
//   mod 2) … of the high part, read as words L and H, give elements 4u … 4u + 3 as bytes (L &
//   0x0f0f0f0f) | (H >> 2⌊u/2⌋ & 0x03030303) << 4, and those 16 further on as (L >> 4 & 0x0f0f0f0f)
//   | (H >> (4 + 2⌊u/2⌋) & 0x03030303) << 4. Codes. inverse = 1 / scale (0 where the scale is 0); n
//   = h + rint(min(max(y · inverse, −h), h − 1)), rint to even. Scale, 6 bits and more: RN16(x /
//   −h), x the element of the largest magnitude (the negative one where both signs have it):
//   nothing saturates. Scale, up to 5 bits: with A the largest magnitude and d the four divisors of
//   kv_scale_divisor(), of RN16(A / d0), RN16(A / −d0), RN16(A / d1), … the one with the least
//   squared error; the first among equals. The error of an element is
//   e = y − (n − h) · scale (the product is exact). Squares are summed unfused, e² of element l and
//   l + 16 first, then those sums l and l + 8, l + 4, l + 2, l + 1: what five exchanges between 32
//   lanes at distances 16, 8, 4, 2, 1 give. Elements that a short group lacks count as 0.
//   A group of zeros has scale +0 and codes n = h.
//
// Inputs that are not finite give some finite row, never undefined behaviour.

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "ops/kv_layout.h"

namespace bl {

// Scales of codes of few bits are the best of 2 · kKvScaleDivisors.
inline constexpr int kKvSearchedBits = 5;  // and fewer
inline constexpr int kKvScaleDivisors = 4;
// Divisor i of groups in codes of `bits`: h, and what errs least beside it over Gaussian groups
// (docs/adr/0032). The fewer codes, the more it pays to cut the extreme element.
BL_HD constexpr float kv_scale_divisor(int bits, int i) {
  if (bits == 4) return i == 0 ? 8.0f : i == 1 ? 8.5f : i == 2 ? 7.5f : 7.0f;
  if (bits == 2) return i == 0 ? 2.0f : i == 1 ? 2.25f : i == 2 ? 2.5f : 2.875f;
  if (bits == 3) return i == 0 ? 4.0f : i == 1 ? 4.25f : i == 2 ? 3.75f : 4.75f;
  return i == 0 ? 16.0f : i == 1 ? 16.5f : i == 2 ? 15.75f : 15.0f;
}

std::uint8_t float_to_e4m3(float value);
float e4m3_to_float(std::uint8_t code);

// Orthonormal, symmetric (its own inverse) transform of one head's vector in place, each scale
// group by itself: an outlier raises the scale of its own group only, which costs less than to
// spread it over the head (docs/adr/0011). In a group of m · p elements, p the largest power of two
// that divides its size, a Walsh–Hadamard transform of each run of p: butterflies of stride 1, 2, 4
// …, (a, b) → (a + b, a − b), then times 1/√p (the float nearest to it); and for m > 1 the
// reflection x_r − (2/m) Σ_s x_s across the m runs, the sum in order from 0, unfused.
void rotate_kv_head(float* x, int dim);

// `x` [row.dim] in the model's basis → `bytes` [row.bytes()].
void encode_kv_row(const KvRow& row, const float* x, std::byte* bytes);

// The row as stored: rotated where row.rotated().
void decode_kv_row(const KvRow& row, const std::byte* bytes, float* x);

}  // namespace bl
