#pragma once
// Numbers by which an integer becomes binary16 without a conversion: bits put beside a code make a
// half that is larger than the code by a base, and subtracting the base leaves the code.

#include <cstdint>

namespace bl::cuda {

// For codes as they lie, and for those that come out 16 times too large (k_steps' upper half,
// code_matrix.h), which widths up to 6 bits leave room for.
inline constexpr std::uint32_t kLowBits = 0x64006400u;
inline constexpr float kLowBase = 1024.0f;
inline constexpr std::uint32_t kHighBits = 0x54005400u;
inline constexpr float kHighBase = 64.0f;

}  // namespace bl::cuda
