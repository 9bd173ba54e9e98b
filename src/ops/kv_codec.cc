#include "ops/kv_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/float16.h"

namespace bl {
namespace {

constexpr int kMaxHead = 1024;
constexpr float kHalfMax = 65504.0f;

std::uint16_t saturated_half(float value) {
  return float_to_half(std::min(std::max(value, -kHalfMax), kHalfMax));
}

// Grid index of y on steps of 1/inverse; NaN gives the lowest.
int code_of(float y, float inverse, int half_levels) {
  const auto low = static_cast<float>(-half_levels);
  const float t = y * inverse;
  const float clamped = t > low ? std::min(t, static_cast<float>(half_levels - 1)) : low;
  // Adding 1.5 · 2^23 rounds to the nearest integer, ties to even.
  return static_cast<int>((clamped + 12582912.0f) - 12582912.0f) + half_levels;
}

// The scale turns the end of the grid that has one step more towards the extreme of `y`.
std::uint16_t scale_of(const float* y, int count, int half_levels) {
  float extreme = 0.0f;
  for (int i = 0; i < count; ++i) {
    if (std::fabs(y[i]) > std::fabs(extreme)) extreme = y[i];
  }
  return saturated_half(-extreme / static_cast<float>(half_levels));
}

void encode_group(const float* y, int count, int bits, std::byte* codes, std::byte* scale) {
  const int half_levels = 1 << (bits - 1);
  const std::uint16_t stored = scale_of(y, count, half_levels);
  const float step = half_to_float(stored);
  const float inverse = step != 0.0f ? 1.0f / step : 0.0f;
  std::memcpy(scale, &stored, sizeof stored);
  std::array<int, kKvScaleGroup> n{};
  for (int i = 0; i < count; ++i)
    n[static_cast<std::size_t>(i)] = code_of(y[i], inverse, half_levels);
  if (bits == 8) {
    for (int i = 0; i < count; ++i)
      codes[i] = static_cast<std::byte>(n[static_cast<std::size_t>(i)]);
    return;
  }
  const int half = (count + 1) / 2;
  for (int i = 0; i < half; ++i) {
    const int high = half + i < count ? n[static_cast<std::size_t>(half + i)] : half_levels;
    codes[i] = static_cast<std::byte>(n[static_cast<std::size_t>(i)] | (high << 4));
  }
}

void decode_group(const std::byte* codes, const std::byte* scale, int count, int bits, float* x) {
  std::uint16_t stored;
  std::memcpy(&stored, scale, sizeof stored);
  const float step = half_to_float(stored);
  const int half_levels = 1 << (bits - 1);
  const int half = (count + 1) / 2;
  for (int i = 0; i < count; ++i) {
    int n;
    if (bits == 8) {
      n = static_cast<int>(codes[i]);
    } else {
      n = i < half ? static_cast<int>(codes[i]) & 15 : static_cast<int>(codes[i - half]) >> 4;
    }
    x[i] = static_cast<float>(n - half_levels) * step;
  }
}

}  // namespace

std::uint8_t float_to_e4m3(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
  // 448 is the last code; all that rounds beyond it stays there.
  if (magnitude >= 0x43e00000u) return static_cast<std::uint8_t>(sign | 0x7eu);
  if (magnitude < 0x3c800000u) {
    // Subnormal, steps of 2^-9: 2^14 has this step.
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
  if ((code & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

void rotate_kv_head(float* x, int dim) {
  const int run = dim & -dim;
  const int runs = dim / run;
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
  BL_CHECK(row.dim <= kMaxHead);
  std::array<float, kMaxHead> y;
  std::copy_n(x, row.dim, y.data());
  rotate_kv_head(y.data(), row.dim);
  std::byte* scale = bytes + row.code_bytes();
  for (int begin = 0; begin < row.dim; begin += kKvScaleGroup, scale += 2) {
    const int count = std::min(kKvScaleGroup, row.dim - begin);
    encode_group(y.data() + begin, count, row.bits, bytes + begin * row.bits / 8, scale);
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
