#include <algorithm>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/rows.h"

namespace bl::cpu {

void rope(ExecContext& ctx, const RopeArgs& args) {
  const ElementKernels& kernels = kernels_of(ctx).element;
  const std::int64_t heads = args.x.shape[1];
  const std::int64_t head_dim = args.x.shape[2];
  const std::int64_t half = args.rotated / 2;
  const bool interleaved = args.style == RopeStyle::kInterleaved;
  for_rows(ctx, args.x.shape[0], heads * args.rotated + 16 * half, [&](std::int64_t t) {
    const std::int32_t row = args.variant[t];
    for (std::int64_t first = 0; first < half; first += kRopeTablePairs) {
      const auto count = static_cast<int>(std::min<std::int64_t>(kRopeTablePairs, half - first));
      RopeTable table;
      kernels.rope_table({.inv_freq = args.inv_freq.row<float>(row) + first,
                          .count = count,
                          .position = static_cast<float>(args.positions[t]),
                          .scale = args.scale.as<float>()[row],
                          .interleaved = interleaved},
                         &table);
      kernels.rope(table, {.first = args.x.row<float>(t) + (interleaved ? 2 * first : first),
                           .second = half,
                           .heads = heads,
                           .head_dim = head_dim,
                           .count = count,
                           .interleaved = interleaved});
    }
  });
}

}  // namespace bl::cpu
