#include "backend/cuda/kv_write.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/rope.cuh"
#include "backend/cuda/token_units.cuh"
#include "base/check.h"

namespace bl::cuda {
namespace {

struct FusedParameters {
  RopeParameters q;
  RopeParameters k;  // its x is not used
  KvWriteParameters write;
  int runs;      // of 32 pairs, of a head of q
  int kv_units;  // of a token
};

// Units of keys and values come first: they take longest.
__global__ void __launch_bounds__(kUnitWarps * 32) rope_kv_write_kernel(FusedParameters p) {
  extern __shared__ float2 table[];
  allow_next();
  dependency_wait();
  const std::int64_t t = blockIdx.x;
  fill_turns(p.q, t, table);
  float* row = p.q.x[t];
  for_units(p.kv_units + p.q.heads * p.runs, [&](int u) {
    if (u < p.kv_units) {
      write_unit(p.write, t, u,
                 [&](const float* x, int e) { return rotated_element(p.k, table, x, e); });
      return;
    }
    const int unit = u - p.kv_units;
    const int head = unit / p.runs;
    rotate_pairs(p.q, table, row + head * p.q.head_dim, (unit - head * p.runs) * 32);
  });
}

}  // namespace

void rope_and_write(ExecContext& ctx, const RopeAndWriteArgs& args) {
  const RopeArgs& q = args.q;
  const RopeArgs& k = args.k;
  const KvWriteArgs& write = args.write;
  BL_CHECK(q.positions == k.positions && q.variant == k.variant && q.rotated == k.rotated &&
           q.style == k.style && q.inv_freq.data == k.inv_freq.data &&
           q.scale.data == k.scale.data);
  BL_CHECK(k.x.data == write.k.data && k.x.shape[2] == write.cache.layout.k_dim);
  FusedParameters p{rope_parameters(q), rope_parameters(k), kv_write_parameters(write), 0, 0};
  p.runs = ceil_div(p.q.half, 32);
  p.kv_units = p.write.units();
  const std::int64_t tokens = q.x.shape[0];
  if (tokens == 0) return;
  const dim3 grid = unit_grid(ctx, tokens, p.kv_units + p.q.heads * p.runs);
  launch(shape_of(ctx, grid, dim3(kUnitWarps * 32),
                  static_cast<std::size_t>(p.q.half) * sizeof(float2)),
         rope_kv_write_kernel, p);
}

}  // namespace bl::cuda
