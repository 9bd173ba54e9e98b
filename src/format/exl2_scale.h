#pragma once
// EXL2's arithmetic (docs/formats/exl2.md §8.3, §9, §10) for host code, exact to the bit in
// binary16.

#include <cstdint>

#include "tensor/float16.h"

namespace bl {

// The fixed centre of a bit width: code q stands for q − 2^(bits−1).
constexpr int exl2_center(int bits) { return 1 << (bits - 1); }

// The 4-bit scale code of a column. `scale_row` is one row of q_scale: 8 columns per word, the
// lowest bits first.
constexpr std::uint32_t exl2_scale_code(const std::uint32_t* scale_row, std::int64_t column) {
  return (scale_row[column / 8] >> (4 * (column % 8))) & 15u;
}

// s(g), the scale of a group: its maximum divided by 256, rounded to binary16 and often subnormal.
constexpr float exl2_group_scale(std::uint16_t scale_max_bits) {
  return half_to_float(float_to_half(half_to_float(scale_max_bits) * (1.0f / 256.0f)));
}

// S(g, c), the scale of a column as a binary16 value, from s(g) and the column's 4-bit code.
constexpr float exl2_column_scale(float group_scale, std::uint32_t code) {
  return half_to_float(float_to_half(static_cast<float>((code + 1) * (code + 1)) * group_scale));
}

}  // namespace bl
