// The op `kv_write`: encodes new keys and values into their cache slots, any cache type and card. A
// unit of work is one scale group, for a warp (token_units.cuh).

#include "backend/cuda/attention/kv_write.cuh"

#include "backend/cuda/attention/attention_ops.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/token_units.cuh"

namespace bl::cuda {
namespace {

template <Widths kWidths>
__global__ void __launch_bounds__(kUnitWarps * 32) kv_write_kernel(KvWriteParameters p, int units) {
  pdl_trigger();
  pdl_wait();
  for_units(units, [&](int u) {
    write_unit<kWidths>(p, blockIdx.x, u, [](const float* x, int e) { return x[e]; });
  });
}

}  // namespace

void kv_write(ExecContext& ctx, const KvWriteArgs& args) {
  const KvWriteParameters p = kv_write_parameters(args);
  const std::int64_t tokens = args.k.shape[0];
  const int units = p.units();
  if (tokens == 0 || units == 0) return;
  launch(
      shape_of(ctx, unit_grid(ctx, tokens, units), dim3(kUnitWarps * 32)),
      p.widths() == Widths::kAny ? kv_write_kernel<Widths::kAny> : kv_write_kernel<Widths::kUsual>,
      p, units);
}

}  // namespace bl::cuda
