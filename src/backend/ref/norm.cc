#include <cmath>

#include "backend/ref/ref_ops.h"

namespace bl::ref {
namespace {

// Normalizes one segment. `out` may be x.
void normalise(const NormArgs& args, const float* x, float* out, std::int64_t segment) {
  const std::int64_t width = args.x.shape[2];
  // Weight and bias have either one row for all segments or one row per segment.
  const auto row_of = [&](const TensorView& view) -> const float* {
    if (view.empty()) return nullptr;
    return view.as<float>() + (view.shape.elements() > width ? segment * width : 0);
  };
  const float* weight = row_of(args.weight);
  const float* bias = row_of(args.bias);
  const auto n = static_cast<double>(width);
  double mean = 0.0;
  if (args.kind == NormKind::kLayer) {
    for (std::int64_t i = 0; i < width; ++i) mean += static_cast<double>(x[i]);
    mean /= n;
  }
  double squares = 0.0;
  for (std::int64_t i = 0; i < width; ++i) {
    const double d = static_cast<double>(x[i]) - mean;
    squares += d * d;
  }
  const double inverse = 1.0 / std::sqrt(squares / n + static_cast<double>(args.eps));
  for (std::int64_t i = 0; i < width; ++i) {
    double y = (static_cast<double>(x[i]) - mean) * inverse;
    if (weight != nullptr) {
      y *= (args.unit_offset ? 1.0 : 0.0) + static_cast<double>(weight[i]);
    }
    if (bias != nullptr) y += static_cast<double>(bias[i]);
    out[i] = static_cast<float>(y);
  }
}

}  // namespace

void norm(ExecContext& ctx, const NormArgs& args) {
  const std::int64_t segments = args.x.shape[1];
  const std::int64_t width = args.x.shape[2];
  for_range(ctx, args.x.shape[0], 4, [&](long begin, long end) {
    for (long t = begin; t < end; ++t) {
      for (std::int64_t s = 0; s < segments; ++s) {
        normalise(args, args.x.row<float>(t) + s * width, args.out.row<float>(t) + s * width, s);
      }
    }
  });
}

}  // namespace bl::ref
