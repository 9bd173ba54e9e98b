#include "backend/cuda/launch.cuh"
#include "backend/cuda/prepare.cuh"
#include "backend/cuda/product.h"

namespace bl::cuda {
namespace {

struct Targets {
  PrepareTarget at[kMaxMatrices];
};

// grid (pieces of the units, tokens, targets): each CTA looks for the largest value of its row by
// itself, which costs less than a kernel of its own.
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_kernel(const float* x, std::int64_t stride, int in,
                   const __grid_constant__ Targets targets, float* token_scales) {
  allow_next();
  __shared__ float warp_largest[kPrepareThreads / 32];
  const int token = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const PrepareTarget& target = targets.at[blockIdx.z];
  const int first = static_cast<int>(blockIdx.x) * kUnitsPerCta + warp * kUnitsPerWarp;
  int channels[kUnitsPerWarp];  // weights' data: may be read before the activations are there
#pragma unroll
  for (int u = 0; u < kUnitsPerWarp; ++u) {
    channels[u] =
        first + u < target.units ? target.channel_of_slot[(first + u) * kUnitSlots + lane] : -1;
  }
  dependency_wait();
  const float* row = x + token * stride;
  float largest = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < in; i += kPrepareThreads) {
    largest = fmaxf(largest, fabsf(row[i]));
  }
  largest = cta_largest(largest, warp_largest);
  const float power = power_for(largest);
  if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.z == 0) token_scales[token] = power;

  const PreparedRow to{target.fragments, target.sums, target.units, token};
  const float divide = 1.0f / power;
#pragma unroll
  for (int u = 0; u < kUnitsPerWarp; ++u) {
    if (first + u >= target.units) break;
    to.store_unit(first + u, channels[u] < 0 ? 0.0f : row[channels[u]] * divide, lane);
  }
}

}  // namespace

void prepare(ExecContext& ctx, const PrepareArgs& args) {
  Targets targets;
  int units = 0;
  for (int i = 0; i < args.count; ++i) {
    targets.at[i] = args.targets[i];
    units = std::max(units, args.targets[i].units);
  }
  const dim3 grid((units + kUnitsPerCta - 1) / kUnitsPerCta, static_cast<unsigned>(args.x.rows()),
                  static_cast<unsigned>(args.count));
  launch(shape_of(ctx, grid, kPrepareThreads), prepare_kernel, args.x.as<const float>(),
         args.x.row_stride, static_cast<int>(args.x.columns()), targets, args.token_scales);
}

}  // namespace bl::cuda
