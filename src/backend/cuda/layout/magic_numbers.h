#pragma once
// Magic numbers that turn an integer into binary16 without a conversion: with these bits beside a
// code the half is code + base, and subtracting the base leaves the code.

#include <cstdint>

namespace bl::cuda {

// For codes in the low bits, and for codes that come out multiplied by 16 (s = 1 of a k_step,
// code_matrix.h), which have room for that up to widths of 6 bits.
inline constexpr std::uint32_t kLowBits = 0x64006400u;
inline constexpr float kLowBase = 1024.0f;
inline constexpr std::uint32_t kHighBits = 0x54005400u;
inline constexpr float kHighBase = 64.0f;

}  // namespace bl::cuda
