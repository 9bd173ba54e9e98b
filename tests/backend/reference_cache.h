#pragma once
// The cache modes of the engine whose quality ours must match at equal bytes, written from their
// description: binary16 arithmetic, 32-point transforms of even and odd positions, a grid of
// −8 … 7 (−128 … 127) with A/8 (A/128) for a scale.

#include <cstdint>
#include <string>
#include <vector>

namespace bl::test {

struct ReferenceBlock {
  std::vector<std::uint8_t> codes;    // 4 bits: two an byte, even element low; 8 bits: one
  std::vector<std::uint16_t> scales;  // one a 32 elements
};

// x: a multiple of 64 elements.
ReferenceBlock reference_quantize(const std::vector<float>& x, int bits);
std::vector<float> reference_dequantize(const ReferenceBlock& block, int bits);
std::vector<float> reference_round_trip(const std::vector<float>& x, int bits);

// Upper byte of the binary16 form.
std::vector<float> reference_fp8(const std::vector<float>& x);

std::string hex(const std::vector<std::uint8_t>& bytes, std::size_t count);

}  // namespace bl::test
