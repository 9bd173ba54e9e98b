// Coded rows of any size, by way of tiles of binary16.

#include "backend/cuda/attention/attention_decode_run.cuh"

namespace bl::cuda {
namespace {

template <CacheTypes kTypes>
void launch_of(const DecodeRun& run) {
  const int dim = std::max(run.params.k_row.dim, run.params.v_row.dim);
  if (dim <= 64) return launch_decode<DecodeRoom<kTypes, 64, 2, DecodeWay::kTile>>(run);
  if (dim <= 128) return launch_decode<DecodeRoom<kTypes, 128, 2, DecodeWay::kTile>>(run);
  BL_CHECK(dim <= 256);
  launch_decode<DecodeRoom<kTypes, 256, 2, DecodeWay::kTile>>(run);
}

}  // namespace

void launch_decode_tile(const DecodeRun& run, CacheTypes types) {
  BL_CHECK(launch_own(types, [&](auto constant) { launch_of<constant()>(run); }));
}

}  // namespace bl::cuda
