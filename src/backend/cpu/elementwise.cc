#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/rows.h"

namespace bl::cpu {

void embed(ExecContext& ctx, const EmbedArgs& args) {
  const ElementKernels& kernels = kernels_of(ctx).element;
  const TensorView& table = args.table;
  const auto stride = table.row_stride * static_cast<std::int64_t>(size_of(table.dtype));
  for_rows(ctx, args.tokens, args.out.columns(), [&](std::int64_t t) {
    kernels.embed({.row = table.as<std::byte>() + args.ids[t] * stride,
                   .dtype = table.dtype,
                   .out = args.out.row<float>(t),
                   .width = args.out.columns(),
                   .multiplier = args.multiplier,
                   .accumulate = args.accumulate});
  });
}

void activate(ExecContext& ctx, const ActivateArgs& args) {
  const ElementKernels& kernels = kernels_of(ctx).element;
  const std::int64_t width = args.gate.columns();
  for_rows(ctx, args.gate.rows(), width * 4, [&](std::int64_t t) {
    kernels.activate(args, args.gate.row<float>(t),
                     args.up.empty() ? nullptr : args.up.row<float>(t), args.out.row<float>(t),
                     width);
  });
}

void add(ExecContext& ctx, const AddArgs& args) {
  const ElementKernels& kernels = kernels_of(ctx).element;
  for_rows(ctx, args.x.rows(), args.x.columns(), [&](std::int64_t t) {
    kernels.add(args.x.row<float>(t), args.y.row<float>(t), args.multiplier, args.x.columns());
  });
}

void scale(ExecContext& ctx, const ScaleArgs& args) {
  const ElementKernels& kernels = kernels_of(ctx).element;
  for_rows(ctx, args.x.rows(), args.x.columns(), [&](std::int64_t t) {
    kernels.scale(args.x.row<float>(t), args.multiplier, args.softcap, args.x.columns());
  });
}

void gate(ExecContext& ctx, const GateArgs& args) {
  const ElementKernels& kernels = kernels_of(ctx).element;
  const std::int64_t gates = args.gate.columns();
  const std::int64_t share = args.x.columns() / gates;
  for_rows(ctx, args.x.rows(), args.x.columns() * 2, [&](std::int64_t t) {
    float* x = args.x.row<float>(t);
    const float* g = args.gate.row<float>(t);
    if (share == 1 && !args.softplus) {
      kernels.gate(x, g, gates);
      return;
    }
    for (std::int64_t i = 0; i < gates; ++i) {
      const float factor = args.softplus
                               ? std::max(g[i], 0.0f) + std::log1p(std::exp(-std::fabs(g[i])))
                               : 1.0f / (1.0f + std::exp(-g[i]));
      kernels.scale(x + i * share, factor, 0.0f, share);
    }
  });
}

void clamp(ExecContext& ctx, const ClampArgs& args) {
  const ElementKernels& kernels = kernels_of(ctx).element;
  for_rows(ctx, args.x.rows(), args.x.columns(), [&](std::int64_t t) {
    kernels.clamp(args.x.row<float>(t), args.limit, args.x.columns());
  });
}

void copy_rows(ExecContext& ctx, const CopyRowsArgs& args) {
  const auto size = static_cast<std::int64_t>(size_of(args.x.dtype));
  for_rows(ctx, args.count, args.x.columns(), [&](std::int64_t i) {
    std::memcpy(args.out.as<std::byte>() + i * args.out.row_stride * size,
                args.x.as<std::byte>() + args.rows[i] * args.x.row_stride * size,
                static_cast<std::size_t>(args.x.columns() * size));
  });
}

void add_rows(ExecContext& ctx, const AddRowsArgs& args) {
  const ElementKernels& kernels = kernels_of(ctx).element;
  for_rows(ctx, args.y.rows(), args.y.columns(), [&](std::int64_t i) {
    kernels.add(args.x.row<float>(args.rows[i]), args.y.row<float>(i), args.weights[i],
                args.y.columns());
  });
}

}  // namespace bl::cpu
