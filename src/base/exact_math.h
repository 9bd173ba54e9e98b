#pragma once
// Float arithmetic that gives the same bits on host and device: each operation is rounded by
// itself. A compiler for devices fuses a · b + c where it is free to; on the host, files in which
// it matters are compiled with -ffp-contract=off.

#include <bit>
#include <cstdint>

#include "base/host_device.h"

namespace bl {

#if defined(__CUDA_ARCH__)
BL_HD inline float exact_mul(float a, float b) { return __fmul_rn(a, b); }
BL_HD inline float exact_add(float a, float b) { return __fadd_rn(a, b); }
BL_HD inline float exact_div(float a, float b) { return __fdiv_rn(a, b); }
BL_HD inline float float_of_bits(std::uint32_t bits) { return __uint_as_float(bits); }
BL_HD inline std::uint32_t bits_of_float(float value) { return __float_as_uint(value); }
#else
// Also called in loops that are compiled for several instruction sets, of which no function may be
// left for the linker to choose from.
[[gnu::always_inline]] BL_HD inline float exact_mul(float a, float b) { return a * b; }
[[gnu::always_inline]] BL_HD inline float exact_add(float a, float b) { return a + b; }
[[gnu::always_inline]] BL_HD inline float exact_div(float a, float b) { return a / b; }
[[gnu::always_inline]] BL_HD inline float float_of_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
[[gnu::always_inline]] BL_HD inline std::uint32_t bits_of_float(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
#endif

}  // namespace bl
