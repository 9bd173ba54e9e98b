// Quantizes activations to 14-bit integers with one scale per row and segment.

#include "backend/cpu/quantized_simd.h"

namespace bl::cpu::BL_ISA {
namespace {

constexpr int kMaxCode = 63 * 128 + 63;
constexpr int kMaxSlots = kMaxSegmentUnits * kUnitSlots;

struct Segment {
  float scale = 0.0f;
  std::int32_t sum = 0;
};

// Quantizes the slots of one segment: gathers them, finds the largest, and writes units of codes
// `pitch` apart.
Segment quantize_segment(const float* x, const std::int32_t* gather, int slots, std::int16_t* codes,
                         std::int64_t pitch) {
  alignas(64) float values[kMaxSlots];
  I32x16 largest = I32x16::zero();
  for (int i = 0; i < slots; i += 16) {
    const F32x16 v = F32x16::gather(x, gather + i);
    v.store(values + i);
    largest = max(largest, abs_bits(v));
  }
  const float peak = __builtin_bit_cast(float, max_lane(largest));
  float inverse = 0.0f;
  Segment segment;
  if (!(peak < __builtin_inff())) {
    segment.scale = __builtin_nanf("");  // infinities and NaN propagate to the result
  } else if (peak > 0x1p-100f) {
    segment.scale = peak * (1.0f / kMaxCode);
    inverse = kMaxCode / peak;
  }
  I32x16 sums = I32x16::zero();
  for (int i = 0; i < slots; i += 16) {
    const F32x16 scaled =
        inverse == 0.0f ? F32x16::splat(0.0f) : F32x16::load(values + i) * F32x16::splat(inverse);
    const I32x16 q = round_to_int(scaled);
    store_pairs(q, codes + i / kUnitSlots * pitch + i % kUnitSlots);
    sums = sums + q;
  }
  segment.sum = sum(sums);
  return segment;
}

}  // namespace

void quantize(const QuantizeArgs& args, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    std::int16_t* codes = args.codes + r * kUnitSlots;
    const std::int64_t pitch = args.row_pitch * kUnitSlots;
    const std::int32_t* gather = args.gather;
    for (std::int64_t s = 0; s < args.segments; ++s) {
      const int slots = args.units[s] * kUnitSlots;
      const Segment segment =
          quantize_segment(args.x + r * args.x_stride, gather, slots, codes, pitch);
      args.scales[r * args.segments + s] = segment.scale;
      args.sums[r * args.segments + s] = segment.sum;
      gather += slots;
      codes += args.units[s] * pitch;
    }
  }
}

}  // namespace bl::cpu::BL_ISA
