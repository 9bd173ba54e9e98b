#include "backend/reference_cache.h"

#include <algorithm>
#include <cmath>

#include "tensor/float16.h"

namespace bl::test {
namespace {

// One operation of binary16 arithmetic: the exact result of two halves is rounded once.
float rn16(double value) { return half_to_float(float_to_half(static_cast<float>(value))); }

// Sum of halves: exact in float, then rounded.
float add(float a, float b) { return rn16(static_cast<double>(a) + static_cast<double>(b)); }

// 32-point transforms of even and odd positions of 64 elements.
void transform(float* chunk) {
  for (int parity = 0; parity < 2; ++parity) {
    for (int h = 1; h < 32; h *= 2) {
      float before[32];
      for (int j = 0; j < 32; ++j) before[j] = chunk[2 * j + parity];
      for (int j = 0; j < 32; ++j) {
        const float other = before[j ^ h];
        chunk[2 * j + parity] = (j & h) != 0 ? add(other, -before[j]) : add(before[j], other);
      }
    }
  }
}

}  // namespace

ReferenceBlock reference_quantize(const std::vector<float>& x, int bits) {
  std::vector<float> y;
  for (const float value : x) y.push_back(rn16(static_cast<double>(value)));
  for (std::size_t i = 0; i < y.size(); i += 64) transform(y.data() + i);
  ReferenceBlock block;
  const int levels = 1 << bits;
  const double half = levels / 2;
  std::vector<std::uint8_t> n(y.size());
  for (std::size_t begin = 0; begin < y.size(); begin += 32) {
    float largest = 0;
    for (std::size_t i = begin; i < begin + 32; ++i) largest = std::max(largest, std::fabs(y[i]));
    block.scales.push_back(float_to_half(static_cast<float>(static_cast<double>(largest) / half)));
    for (std::size_t i = begin; i < begin + 32; ++i) {
      if (largest == 0) continue;  // 0 / 0 becomes code 0
      const float ratio = rn16(static_cast<double>(y[i]) / static_cast<double>(largest));
      const float on_grid = rn16(static_cast<double>(ratio) * half + half);
      n[i] = static_cast<std::uint8_t>(
          std::clamp(static_cast<int>(std::nearbyint(on_grid)), 0, levels - 1));
    }
  }
  if (bits == 8) {
    block.codes = n;
  } else {
    for (std::size_t i = 0; i < n.size(); i += 2) {
      block.codes.push_back(static_cast<std::uint8_t>(n[i] | (n[i + 1] << 4)));
    }
  }
  return block;
}

std::vector<float> reference_dequantize(const ReferenceBlock& block, int bits) {
  std::vector<float> w(block.scales.size() * 32);
  for (std::size_t i = 0; i < w.size(); ++i) {
    const int n = bits == 8 ? block.codes[i] : (block.codes[i / 2] >> (i % 2 * 4)) & 15;
    const double scale = static_cast<double>(half_to_float(block.scales[i / 32]));
    w[i] = rn16((n - (1 << (bits - 1))) * scale);
  }
  for (std::size_t i = 0; i < w.size(); i += 64) transform(w.data() + i);
  for (float& value : w) value = rn16(static_cast<double>(value) / 32.0);
  return w;
}

std::vector<float> reference_round_trip(const std::vector<float>& x, int bits) {
  return reference_dequantize(reference_quantize(x, bits), bits);
}

std::vector<float> reference_fp8(const std::vector<float>& x) {
  std::vector<float> y;
  for (const float value : x) {
    y.push_back(half_to_float(static_cast<std::uint16_t>(float_to_half(value) & 0xff00u)));
  }
  return y;
}

std::string hex(const std::vector<std::uint8_t>& bytes, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    for (const int nibble : {bytes[i] >> 4, bytes[i] & 15}) text += "0123456789abcdef"[nibble];
  }
  return text;
}

}  // namespace bl::test
