#include "backend/cuda/layout/unpack.h"

#include "backend/cuda/layout/code_pack.h"
#include "format/exl2_scale.h"
#include "tensor/float16.h"

namespace bl::cuda {
namespace {

// The scale and zero point of a column, from the packed scales of its strip and group.
struct ColumnScale {
  float scale;
  std::int32_t zero;
};

ColumnScale column_scale(const CodePackPlan& plan, const std::uint32_t* words, float group_scale,
                         int bits, int column) {
  const PackedScale packed = unpacked_scale(words, plan.kind, column);
  if (plan.kind == ScaleKind::kExl2) {
    return {exl2_column_scale(group_scale, packed.scale), exl2_center(bits)};
  }
  return {half_to_float(static_cast<std::uint16_t>(packed.scale)),
          plan.zero + static_cast<std::int32_t>(packed.zero)};
}

}  // namespace

std::vector<float> unpack_codes(const CodePackPlan& plan, const HostCodes& packed) {
  std::vector<float> result(static_cast<std::size_t>(plan.in * plan.out));
  const std::int64_t strip_words = plan.strip_bytes() / 4;
  const std::int64_t stride_words = scale_stride(plan.kind, plan.groups) / 4;
  const std::int64_t group_words = scale_bytes(plan.kind) / 4;
  for (std::int64_t strip = 0; strip < plan.strips(); ++strip) {
    const std::uint32_t* unit = packed.codes.data() + strip * strip_words;
    std::size_t chunk = 0;  // that holds unit u
    for (std::size_t u = 0; u < plan.group_of_unit.size(); ++u) {
      const int bits = plan.bits_of_unit[u];
      const std::int64_t group = plan.group_of_unit[u];
      const std::uint32_t* scales =
          packed.scales.data() + strip * stride_words + group * group_words;
      while (chunk + 1 < plan.chunks.size() && plan.chunks[chunk + 1].first_unit <= u) ++chunk;
      const float group_scale = plan.chunks[chunk].group_scale;
      for (int c = 0; c < kStripColumns && strip * kStripColumns + c < plan.out; ++c) {
        const ColumnScale s = column_scale(plan, scales, group_scale, bits, c);
        for (int slot = 0; slot < kUnitSlots; ++slot) {
          const std::int32_t channel =
              packed.channel_of_slot[u * kUnitSlots + static_cast<std::size_t>(slot)];
          if (channel < 0) continue;
          const auto code = static_cast<std::int32_t>(unpacked_code(unit, bits, slot, c));
          result[static_cast<std::size_t>(channel * plan.out + strip * kStripColumns + c)] =
              half_to_float(float_to_half(static_cast<float>(code - s.zero) * s.scale));
        }
      }
      unit += unit_bytes(bits) / 4;
    }
  }
  return result;
}

}  // namespace bl::cuda
