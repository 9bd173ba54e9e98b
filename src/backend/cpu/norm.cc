#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/rows.h"

namespace bl::cpu {

void norm(ExecContext& ctx, const NormArgs& args) {
  const ElementKernels& kernels = kernels_of(ctx).element;
  const std::int64_t segments = args.x.shape[1];
  const std::int64_t width = args.x.shape[2];
  const TensorView& parameters = args.weight.empty() ? args.bias : args.weight;
  const bool of_each_segment = !parameters.empty() && parameters.shape.elements() > width;
  for_rows(ctx, args.x.shape[0], segments * width, [&](std::int64_t t) {
    kernels.norm({.x = args.x.row<float>(t),
                  .out = args.out.row<float>(t),
                  .weight = args.weight.as<float>(),
                  .bias = args.bias.as<float>(),
                  .segments = segments,
                  .width = width,
                  .parameter_stride = of_each_segment ? width : 0,
                  .kind = args.kind,
                  .eps = args.eps,
                  .unit_offset = args.unit_offset});
  });
}

}  // namespace bl::cpu
