#include <cmath>

#include "backend/ref/ref_ops.h"

namespace bl::ref {

void rope(ExecContext& ctx, const RopeArgs& args) {
  const std::int64_t heads = args.x.shape[1];
  const std::int64_t head_dim = args.x.shape[2];
  const std::int64_t half = args.rotated / 2;
  const bool neox = args.style == RopeStyle::kNeox;
  for_range(ctx, args.x.shape[0], 4, [&](long begin, long end) {
    for (long t = begin; t < end; ++t) {
      const std::int32_t row = args.variant[t];
      const float* inv_freq = args.inv_freq.row<float>(row);
      const float factor = args.scale.as<float>()[row];
      for (std::int64_t i = 0; i < half; ++i) {
        // The angle is a product of floats, as in the models' reference code; at far positions it
        // matters.
        const float angle = static_cast<float>(args.positions[t]) * inv_freq[i];
        const float c = static_cast<float>(std::cos(static_cast<double>(angle))) * factor;
        const float s = static_cast<float>(std::sin(static_cast<double>(angle))) * factor;
        for (std::int64_t h = 0; h < heads; ++h) {
          float* head = args.x.row<float>(t) + h * head_dim;
          float& a = head[neox ? i : 2 * i];
          float& b = head[neox ? i + half : 2 * i + 1];
          const float rotated = a * c - b * s;
          b = b * c + a * s;
          a = rotated;
        }
      }
    }
  });
}

}  // namespace bl::ref
