#pragma once
// Float arithmetic that gives the same bits on host and device, because every operation is rounded
// on its own. A device compiler would otherwise fuse a · b + c into one operation; host files in
// which that matters are compiled with -ffp-contract=off.

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
// These are forced inline because files that are compiled once per instruction set call them: of
// several out-of-line copies the linker keeps one, which the running CPU may not support.
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
