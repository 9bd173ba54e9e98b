#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/rotate_heads.h"
#include "backend/cpu/rows.h"

namespace bl::cpu {

void rotate_heads(const ElementKernels& kernels, const RopeArgs& args, std::int64_t token,
                  std::span<const HeadRange> ranges) {
  const std::int64_t half = args.rotated / 2;
  const bool interleaved = args.style == RopeStyle::kInterleaved;
  const std::int32_t row = args.variant[token];
  for (std::int64_t first = 0; first < half; first += kRopeTablePairs) {
    const auto count = static_cast<int>(std::min<std::int64_t>(kRopeTablePairs, half - first));
    RopeTable table;
    kernels.rope_table({.inv_freq = args.inv_freq.row<float>(row) + first,
                        .count = count,
                        .position = static_cast<float>(args.positions[token]),
                        .scale = args.scale.as<float>()[row],
                        .interleaved = interleaved},
                       &table);
    for (const HeadRange& range : ranges) {
      kernels.rope(table, {.first = range.first + (interleaved ? 2 * first : first),
                           .second = half,
                           .heads = range.heads,
                           .head_dim = args.x.shape[2],
                           .count = count,
                           .interleaved = interleaved});
    }
  }
}

void rope(ExecContext& ctx, const RopeArgs& args) {
  const ElementKernels& kernels = kernels_of(ctx).element;
  const std::int64_t heads = args.x.shape[1];
  for_rows(ctx, args.x.shape[0], heads * args.rotated + 8 * args.rotated, [&](std::int64_t t) {
    const HeadRange all{.first = args.x.row<float>(t), .heads = heads};
    rotate_heads(kernels, args, t, {&all, 1});
  });
}

}  // namespace bl::cpu
