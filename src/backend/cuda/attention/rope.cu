#include "backend/cuda/attention/rope.cuh"

#include "backend/cuda/attention/attention_ops.h"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/token_units.cuh"

namespace bl::cuda {
namespace {

// The op `rope`: rotates heads in place, on any card. A unit of work is 32 pairs of a head, for a
// warp (token_units.cuh).
__global__ void __launch_bounds__(kUnitWarps * 32) rope_kernel(RopeParameters p, int runs) {
  extern __shared__ float2 table[];
  pdl_trigger();
  pdl_wait();
  const std::int64_t t = blockIdx.x;
  fill_rope_table(p, t, table);
  float* row = p.x[t];
  for_units(p.heads * runs, [&](int u) {
    const int head = u / runs;
    rotate_pairs(p, table, row + head * p.head_dim, (u - head * runs) * 32);
  });
}

}  // namespace

void rope(ExecContext& ctx, const RopeArgs& args) {
  const RopeParameters p = rope_parameters(args);
  const std::int64_t tokens = args.x.shape[0];
  const int runs = ceil_div(p.half, 32);
  if (tokens == 0 || p.heads * runs == 0) return;
  const dim3 grid = unit_grid(ctx, tokens, p.heads * runs);
  launch(
      shape_of(ctx, grid, dim3(kUnitWarps * 32), static_cast<std::size_t>(p.half) * sizeof(float2)),
      rope_kernel, p, runs);
}

}  // namespace bl::cuda
