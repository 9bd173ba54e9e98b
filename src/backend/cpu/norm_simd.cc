#include "backend/cpu/element_simd.h"
#include "backend/cpu/simd/vec_bits.h"
#include "backend/cpu/simd/vec_runs.h"

namespace bl::cpu::BL_ISA {
namespace {

float mean_of(const float* x, std::int64_t width) {
  F32x16 total = F32x16::splat(0.0f);
  std::int64_t i = 0;
  for (; i + 16 <= width; i += 16) total = total + F32x16::load(x + i);
  if (i < width) total = total + F32x16::load_first(x + i, static_cast<int>(width - i));
  return sum(total) / static_cast<float>(width);
}

float mean_square(const float* x, float mean, std::int64_t width) {
  const F32x16 m = F32x16::splat(mean);
  F32x16 total = F32x16::splat(0.0f);
  std::int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    const F32x16 d = F32x16::load(x + i) - m;
    total = fma(d, d, total);
  }
  float rest = 0.0f;
  for (; i < width; ++i) rest += (x[i] - mean) * (x[i] - mean);
  return (sum(total) + rest) / static_cast<float>(width);
}

void normalise(const NormRow& row, std::int64_t segment) {
  const float* x = row.x + segment * row.width;
  float* out = row.out + segment * row.width;
  const std::int64_t parameters = segment * row.parameter_stride;
  const float mean = row.kind == NormKind::kLayer ? mean_of(x, row.width) : 0.0f;
  const float inverse = 1.0f / sqrt_lane(mean_square(x, mean, row.width) + row.eps);
  const F32x16 m = F32x16::splat(mean);
  const F32x16 factor = F32x16::splat(inverse);
  const F32x16 offset = F32x16::splat(row.unit_offset ? 1.0f : 0.0f);
  for_runs(row.width, [&](std::int64_t i, int n) {
    F32x16 y = (load(x + i, n) - m) * factor;
    if (row.weight != nullptr) y = y * (load(row.weight + parameters + i, n) + offset);
    if (row.bias != nullptr) y = y + load(row.bias + parameters + i, n);
    store(y, out + i, n);
  });
}

}  // namespace

void norm(const NormRow& row) {
  for (std::int64_t segment = 0; segment < row.segments; ++segment) normalise(row, segment);
}

}  // namespace bl::cpu::BL_ISA
