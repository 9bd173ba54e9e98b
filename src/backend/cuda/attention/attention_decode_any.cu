// Integer codes of any two widths, which the rows' shapes say, by way of tiles of binary16.

#include "backend/cuda/attention/attention_decode_run.cuh"

namespace bl::cuda {
namespace {

template <int kDim, int kTiles>
using AnyRoom = DecodeRoom<kAnyWidth, kDim, kTiles, DecodeWay::kTile>;

}  // namespace

void launch_decode_any(const DecodeRun& run, int query_tiles) {
  const int dim = std::max(run.params.k_row.dim, run.params.v_row.dim);
  const bool few = query_tiles == 1;
  if (dim <= 64) {
    return few ? launch_decode<AnyRoom<64, 1>>(run) : launch_decode<AnyRoom<64, 2>>(run);
  }
  if (dim <= 128) {
    return few ? launch_decode<AnyRoom<128, 1>>(run) : launch_decode<AnyRoom<128, 2>>(run);
  }
  BL_CHECK(dim <= 256 && !few);
  launch_decode<AnyRoom<256, 2>>(run);
}

}  // namespace bl::cuda
