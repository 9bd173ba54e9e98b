#include <algorithm>
#include <array>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/products.h"
#include "base/check.h"

namespace bl::cpu {

void matmul(ExecContext& ctx, const MatmulArgs& args) {
  std::array<Product, 8> products;
  std::span<const MatmulOutput> outputs = args.outputs;
  while (!outputs.empty()) {
    const std::size_t count = std::min(outputs.size(), products.size());
    for (std::size_t i = 0; i < count; ++i) {
      const MatmulOutput& output = outputs[i];
      const auto& weight = static_cast<const CpuMatrix&>(*output.weight);
      BL_CHECK(args.x.columns() == weight.in() && output.out.rows() == args.x.rows());
      products[i] = {.weight = &weight,
                     .x = args.x,
                     .out = output.out,
                     .bias = output.bias.empty() ? nullptr : output.bias.as<const float>(),
                     .multiplier = args.epilogue.multiplier,
                     .accumulate = args.epilogue.accumulate};
    }
    run_products(ctx, {products.data(), count});
    outputs = outputs.subspan(count);
  }
}

}  // namespace bl::cpu
