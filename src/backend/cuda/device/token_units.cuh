#pragma once
// Launches whose work is a number of warp-sized units for every token. The grid is (tokens, parts
// of the units), so that a CTA belongs to one token and prepares what that token needs only once.

#include <algorithm>

#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/row_view.cuh"
#include "backend/cuda/device/warp_reduce.cuh"

namespace bl::cuda {

inline constexpr int kUnitWarps = 8;  // warps of a CTA

// Grid for `units` units a token: enough CTAs for eight a multiprocessor, if there are so many
// units.
inline dim3 unit_grid(const ExecContext& ctx, std::int64_t tokens, int units) {
  const std::int64_t most = ceil_div(units, kUnitWarps);
  const std::int64_t wanted =
      ceil_div<std::int64_t>(std::int64_t{8} * cuda_device(ctx).facts().multiprocessors, tokens);
  return dim3(static_cast<unsigned>(tokens), static_cast<unsigned>(std::min(most, wanted)));
}

// Calls unit(u) for every unit of this warp.
template <class Unit>
__device__ __forceinline__ void for_units(int units, const Unit& unit) {
  const int warp = static_cast<int>(blockIdx.y) * kUnitWarps + warp_index();
  const int step = static_cast<int>(gridDim.y) * kUnitWarps;
  for (int u = warp; u < units; u += step) unit(u);
}

}  // namespace bl::cuda
