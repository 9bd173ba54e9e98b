#pragma once
// Rows of the KV cache: the number formats, case by case. This is the scalar definition; a backend
// with a faster version must produce the same bytes.
//
// kF32, kF16: element e at index e; binary16 by round to nearest even, saturated at ±65504.
// kE4M3: one byte an element: sign, 4 exponent bits (bias 7), 3 mantissa bits; round to nearest
//   even, subnormals kept, saturated at ±448.
// kInt, b bits: the row is rotated (rotate_kv_head), then cut into groups of 32 (the last may be
//   shorter). Codes of all groups, then one binary16 scale a group. An element is
//   (n − 2^(b−1)) · scale, so the grid has one step more on one side, which the sign of the scale
//   turns where it is wanted.
//   8 bits: scale = RN16(−extreme / 128); nothing saturates. Byte e holds n of element e.
//   4 bits: of the scales ±A/8, ±A/8.5, ±A/7.5, ±A/7 (A the largest magnitude, rounded to binary16)
//   the one with the least squared error; the first among equals. A group of g elements takes
//   ⌈g/2⌉ bytes; byte i holds element i in its low and element ⌈g/2⌉ + i in its high nibble.
//   Squared errors are summed in 16 lanes, lane l over elements l and l + 16, then lanes l and
//   l + 8, + 4, + 2, + 1.
//
// Inputs that are not finite give some finite row, never undefined behaviour.

#include <cstddef>
#include <cstdint>

#include "ops/kv_layout.h"

namespace bl {

std::uint8_t float_to_e4m3(float value);
float e4m3_to_float(std::uint8_t code);

// Orthonormal, symmetric (its own inverse) transform of one head's vector in place, each scale
// group by itself: an outlier raises the scale of its own group only, which costs less than to
// spread it over the head (docs/adr/0011). In a group of m · p elements, p the largest power of two
// in it, a Walsh–Hadamard transform of each run of p (butterflies of stride 1, 2, 4 …, then times
// 1/√p), and for m > 1 the reflection x_r − (2/m) Σ_s x_s across the m runs.
void rotate_kv_head(float* x, int dim);

// `x` [row.dim] in the model's basis → `bytes` [row.bytes()].
void encode_kv_row(const KvRow& row, const float* x, std::byte* bytes);

// The row as stored: rotated where row.rotated().
void decode_kv_row(const KvRow& row, const std::byte* bytes, float* x);

}  // namespace bl
