#pragma once
// Storage types of 16-bit floats with exact scalar conversions: round to nearest even, subnormals
// kept, as the EXL2 and GPTQ formats demand. Arithmetic happens in float.

#include <bit>
#include <cstdint>

namespace bl {

// IEEE-754 binary16 bits → float, exact.
constexpr float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Zero or subnormal: mantissa · 2^-24 is exact in float.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

// float → IEEE-754 binary16 bits, round to nearest even, gradual underflow, overflow to infinity.
constexpr std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to inf
  if (magnitude < 0x38800000u) {
    // Below the smallest normal half: after adding 0.5, float itself rounds at the half's last bit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  // Adding 0xc8000000 changes the exponent's bias from 127 to 15; 0xfff + odd rounds to even.
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<std::uint16_t>(sign | ((magnitude + 0xc8000fffu + odd) >> 13));
}

struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  constexpr explicit Half(float value) : bits(float_to_half(value)) {}
  constexpr explicit operator float() const { return half_to_float(bits); }
  static constexpr Half from_bits(std::uint16_t bits) {
    Half h;
    h.bits = bits;
    return h;
  }
};

struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  // Round to nearest even; NaN stays NaN.
  constexpr explicit BFloat16(float value) {
    const std::uint32_t b = std::bit_cast<std::uint32_t>(value);
    bits = (b & 0x7fffffffu) > 0x7f800000u
               ? static_cast<std::uint16_t>((b >> 16) | 0x40u)
               : static_cast<std::uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
  }
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

}  // namespace bl
