#include "ops/kv_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tensor/float16.h"

namespace bl {
namespace {

constexpr float kHalfMax = 65504.0f;

using Group = std::array<float, kKvScaleGroup>;  // a shorter last group is padded with zeros

std::uint16_t saturated_half(float value) {
  const float above = value > -kHalfMax ? value : -kHalfMax;
  return float_to_half(above < kHalfMax ? above : kHalfMax);
}

// Index of y in the grid, minus h = half_levels. NaN becomes the lowest index.
float code_of(float y, float inverse, int half_levels) {
  const auto low = static_cast<float>(-half_levels);
  const auto high = static_cast<float>(half_levels - 1);
  const float t = y * inverse;
  const float above = t > low ? t : low;
  const float bounded = above < high ? above : high;
  // Adding 1.5 · 2^23 rounds to the nearest integer, ties to even.
  return (bounded + 12582912.0f) - 12582912.0f;
}

float inverse_of(float step) { return step != 0.0f ? 1.0f / step : 0.0f; }

float squared_error(const Group& y, float step, int half_levels) {
  const float inverse = inverse_of(step);
  std::array<float, 16> lanes;
  for (std::size_t l = 0; l < 16; ++l) {
    const float a = y[l] - code_of(y[l], inverse, half_levels) * step;
    const float b = y[l + 16] - code_of(y[l + 16], inverse, half_levels) * step;
    lanes[l] = a * a + b * b;
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

std::uint16_t scale_of(const Group& y, int bits) {
  const float highest = *std::max_element(y.begin(), y.end());
  const float lowest = *std::min_element(y.begin(), y.end());
  const float extreme = highest > -lowest ? highest : lowest;
  if (extreme == 0.0f) return 0;
  if (bits > kKvSearchedBits) {
    return saturated_half(extreme / static_cast<float>(-(1 << (bits - 1))));
  }
  const float largest = std::fabs(extreme);
  std::uint16_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int i = 0; i < 2 * kKvScaleDivisors; ++i) {
    const float divisor = kv_scale_divisor(bits, i / 2);
    const std::uint16_t scale = saturated_half(largest / (i % 2 == 0 ? divisor : -divisor));
    const float error = squared_error(y, half_to_float(scale), 1 << (bits - 1));
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

// Calls body(width, lowest bit) for each plane of codes of `bits` bits.
template <class Body>
void for_planes(int bits, const Body& body) {
  int lowest = 0;
  for (const int width : kKvPlanes) {
    if ((bits & width) == 0) continue;
    body(width, lowest);
    lowest += width;
  }
}

void encode_group(const Group& y, int count, int bits, std::byte* codes, std::byte* scale) {
  const std::uint16_t stored = scale_of(y, bits);
  std::memcpy(scale, &stored, sizeof stored);
  const float inverse = inverse_of(half_to_float(stored));
  const int half_levels = 1 << (bits - 1);
  const auto code = [&](int i) {
    return static_cast<int>(code_of(y[static_cast<std::size_t>(i)], inverse, half_levels)) +
           half_levels;
  };
  for_planes(bits, [&](int width, int lowest) {
    const int bytes = kv_plane_bytes(count, width);
    for (int i = 0; i < bytes; ++i) {
      int joined = 0;
      for (int j = 0; j < 8 / width; ++j) {
        const int part = code(i + j * bytes) >> lowest & ((1 << width) - 1);
        joined |= part << (width * j);
      }
      codes[i] = static_cast<std::byte>(joined);
    }
    codes += bytes;
  });
}

void decode_group(const std::byte* codes, const std::byte* scale, int count, int bits, float* x) {
  std::uint16_t stored;
  std::memcpy(&stored, scale, sizeof stored);
  const float step = half_to_float(stored);
  const int half_levels = 1 << (bits - 1);
  std::array<int, kKvScaleGroup> n{};
  for_planes(bits, [&](int width, int lowest) {
    const int bytes = kv_plane_bytes(count, width);
    for (int i = 0; i < count; ++i) {
      const int joined = static_cast<int>(codes[i % bytes]);
      const int part = joined >> (width * (i / bytes)) & ((1 << width) - 1);
      n[static_cast<std::size_t>(i)] |= part << lowest;
    }
    codes += bytes;
  });
  for (int i = 0; i < count; ++i) {
    x[i] = static_cast<float>(n[static_cast<std::size_t>(i)] - half_levels) * step;
  }
}

void rotate_group(float* x, int count) {
  const int run = count & -count;
  const int runs = count / run;
  const auto norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(run)));
  for (int r = 0; r < runs; ++r) {
    float* y = x + r * run;
    for (int stride = 1; stride < run; stride *= 2) {
      for (int i = 0; i < run; ++i) {
        if ((i & stride) != 0) continue;
        const float a = y[i];
        const float b = y[i + stride];
        y[i] = a + b;
        y[i + stride] = a - b;
      }
    }
    for (int i = 0; i < run; ++i) y[i] *= norm;
  }
  if (runs == 1) return;
  const float share = 2.0f / static_cast<float>(runs);
  for (int i = 0; i < run; ++i) {
    float sum = 0.0f;
    for (int r = 0; r < runs; ++r) sum += x[r * run + i];
    const float part = share * sum;
    for (int r = 0; r < runs; ++r) x[r * run + i] -= part;
  }
}

}  // namespace

std::uint8_t float_to_e4m3(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // 448 is the largest code. Values that round above it, infinities and NaN, become ±448.
  if (magnitude >= 0x43e00000u) return static_cast<std::uint8_t>(sign | 0x7eu);
  if (magnitude < 0x3c800000u) {
    // Subnormal: the step is 2^-9, which is the step of floats near 2^14.
    const float shifted = std::bit_cast<float>(magnitude) + 16384.0f;
    return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x46800000u));
  }
  const std::uint32_t odd = (magnitude >> 20) & 1u;
  const std::uint32_t rounded = magnitude + 0x7ffffu + odd - (120u << 23);
  return static_cast<std::uint8_t>(sign | (rounded >> 20));
}

float e4m3_to_float(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t exponent = (code >> 3) & 15u;
  const std::uint32_t mantissa = code & 7u;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

void rotate_kv_head(float* x, int dim) {
  for (int begin = 0; begin < dim; begin += kKvScaleGroup) {
    rotate_group(x + begin, std::min(kKvScaleGroup, dim - begin));
  }
}

void encode_kv_row(const KvRow& row, const float* x, std::byte* bytes) {
  switch (row.code) {
    case KvRow::Code::kF32:
      std::memcpy(bytes, x, row.bytes());
      return;
    case KvRow::Code::kF16:
      for (int i = 0; i < row.dim; ++i) {
        const std::uint16_t half = saturated_half(x[i]);
        std::memcpy(bytes + i * 2, &half, sizeof half);
      }
      return;
    case KvRow::Code::kE4M3:
      for (int i = 0; i < row.dim; ++i) bytes[i] = static_cast<std::byte>(float_to_e4m3(x[i]));
      return;
    case KvRow::Code::kInt:
      break;
  }
  std::vector<float> y(x, x + row.dim);
  rotate_kv_head(y.data(), row.dim);
  std::byte* scale = bytes + row.code_bytes();
  for (int begin = 0; begin < row.dim; begin += kKvScaleGroup, scale += 2) {
    const int count = std::min(kKvScaleGroup, row.dim - begin);
    Group group{};
    std::copy_n(y.begin() + begin, count, group.begin());
    encode_group(group, count, row.bits, bytes + begin * row.bits / 8, scale);
  }
}

void decode_kv_row(const KvRow& row, const std::byte* bytes, float* x) {
  switch (row.code) {
    case KvRow::Code::kF32:
      std::memcpy(x, bytes, row.bytes());
      return;
    case KvRow::Code::kF16:
      for (int i = 0; i < row.dim; ++i) {
        std::uint16_t half;
        std::memcpy(&half, bytes + i * 2, sizeof half);
        x[i] = half_to_float(half);
      }
      return;
    case KvRow::Code::kE4M3:
      for (int i = 0; i < row.dim; ++i) x[i] = e4m3_to_float(static_cast<std::uint8_t>(bytes[i]));
      return;
    case KvRow::Code::kInt:
      break;
  }
  const std::byte* scale = bytes + row.code_bytes();
  for (int begin = 0; begin < row.dim; begin += kKvScaleGroup, scale += 2) {
    const int count = std::min(kKvScaleGroup, row.dim - begin);
    decode_group(bytes + begin * row.bits / 8, scale, count, row.bits, x + begin);
  }
}

}  // namespace bl
