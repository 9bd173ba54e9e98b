#include <algorithm>
#include <array>

#include "backend/ref/ref_backend.h"
#include "backend/ref/ref_ops.h"

namespace bl::ref {
namespace {

constexpr std::int64_t kColumns = 64;  // columns per tile
// Products that are summed in float before they are added to the double.
constexpr std::int64_t kRun = 64;

// Computes row t of one tile of columns. Inputs are summed in order, so the batch does not matter.
void product_tile(const ProductArgs& args, std::int64_t t, std::int64_t c0, std::int64_t columns) {
  const std::int64_t in = args.weight.rows();
  const float* x = args.x.row<float>(t);
  std::array<double, kColumns> sum{};
  for (std::int64_t k0 = 0; k0 < in; k0 += kRun) {
    std::array<float, kColumns> part{};
    const std::int64_t k1 = std::min(k0 + kRun, in);
    for (std::int64_t k = k0; k < k1; ++k) {
      const float* w = args.weight.row<float>(k) + c0;
      const float xk = x[k];
      if (columns == kColumns) {
        for (std::size_t c = 0; c < kColumns; ++c) part[c] += xk * w[c];
      } else {
        for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) part[c] += xk * w[c];
      }
    }
    for (std::size_t c = 0; c < kColumns; ++c) sum[c] += static_cast<double>(part[c]);
  }
  float* out = args.out.row<float>(t) + c0;
  for (std::int64_t c = 0; c < columns; ++c) {
    out[c] = static_cast<float>(sum[static_cast<std::size_t>(c)]);
  }
}

}  // namespace

void product(ExecContext& ctx, const ProductArgs& args) {
  const std::int64_t out = args.weight.columns();
  const std::int64_t tiles = (out + kColumns - 1) / kColumns;
  for_range(ctx, tiles, 1, [&](long begin, long end) {
    for (long tile = begin; tile < end; ++tile) {
      const std::int64_t c0 = tile * kColumns;
      for (std::int64_t t = 0; t < args.x.rows(); ++t) {
        product_tile(args, t, c0, std::min(kColumns, out - c0));
      }
    }
  });
}

void matmul(ExecContext& ctx, const MatmulArgs& args) {
  for (const MatmulOutput& output : args.outputs) {
    const TensorView& weight = static_cast<const RefMatrix&>(*output.weight).weight();
    const std::int64_t tokens = args.x.rows();
    const Tensor y = make_host_tensor(DType::kF32, {tokens, weight.columns()});
    product(ctx, {.x = args.x, .weight = weight, .out = y.view()});
    const float* bias = output.bias.empty() ? nullptr : output.bias.as<float>();
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* from = y.view().row<float>(t);
      float* out = output.out.row<float>(t);
      for (std::int64_t c = 0; c < weight.columns(); ++c) {
        const float value = args.epilogue.multiplier * from[c] + (bias != nullptr ? bias[c] : 0.0f);
        out[c] = args.epilogue.accumulate ? out[c] + value : value;
      }
    }
  }
}

}  // namespace bl::ref
