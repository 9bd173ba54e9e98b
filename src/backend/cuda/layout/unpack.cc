#include "backend/cuda/layout/unpack.h"

#include "backend/cuda/layout/code_pack.h"
#include "format/exl2_scale.h"
#include "tensor/float16.h"

namespace bl::cuda {
namespace {

// The scale and zero point of a column, from the packed scales of its n_tile and group.
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
  const std::int64_t n_tile_words = plan.n_tile_bytes() / 4;
  const std::int64_t stride_words = scale_stride(plan.kind, plan.groups) / 4;
  const std::int64_t group_words = scale_bytes(plan.kind) / 4;
  for (std::int64_t n_tile = 0; n_tile < plan.n_tiles(); ++n_tile) {
    const std::uint32_t* k_step = packed.codes.data() + n_tile * n_tile_words;
    std::size_t k_block = 0;  // the k_block of k_step u
    for (std::size_t u = 0; u < plan.group_of_k_step.size(); ++u) {
      const int bits = plan.bits_of_k_step[u];
      const std::int64_t group = plan.group_of_k_step[u];
      const std::uint32_t* scales =
          packed.scales.data() + n_tile * stride_words + group * group_words;
      while (k_block + 1 < plan.k_blocks.size() && plan.k_blocks[k_block + 1].first_k_step <= u)
        ++k_block;
      const float group_scale = plan.k_blocks[k_block].group_scale;
      for (int c = 0; c < kNTileColumns && n_tile * kNTileColumns + c < plan.out; ++c) {
        const ColumnScale s = column_scale(plan, scales, group_scale, bits, c);
        for (int k = 0; k < kKStepSize; ++k) {
          const std::int32_t feature =
              packed.feature_of_k[u * kKStepSize + static_cast<std::size_t>(k)];
          if (feature < 0) continue;
          const auto code = static_cast<std::int32_t>(unpacked_code(k_step, bits, k, c));
          result[static_cast<std::size_t>(feature * plan.out + n_tile * kNTileColumns + c)] =
              half_to_float(float_to_half(static_cast<float>(code - s.zero) * s.scale));
        }
      }
      k_step += k_step_bytes(bits) / 4;
    }
  }
  return result;
}

}  // namespace bl::cuda
