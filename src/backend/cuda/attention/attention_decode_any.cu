// Decode kernels for integer caches of any two widths (2 to 8 bits), which are parameters at run
// time. They dequantize to binary16 tiles in shared memory. Widths in kOwnKernels have kernels of
// their own.

#include "backend/cuda/attention/attention_decode_run.cuh"

namespace bl::cuda {
namespace {

template <int kDim, int kTiles>
using AnyConfig = DecodeConfig<kAnyWidth, kDim, kTiles, FragmentSource::kTile>;

}  // namespace

void launch_decode_any(const DecodeRun& run, int query_tiles) {
  const int dim = std::max(run.params.k_row.dim, run.params.v_row.dim);
  const bool few = query_tiles == 1;
  if (dim <= 64) {
    return few ? launch_decode<AnyConfig<64, 1>>(run) : launch_decode<AnyConfig<64, 2>>(run);
  }
  if (dim <= 128) {
    return few ? launch_decode<AnyConfig<128, 1>>(run) : launch_decode<AnyConfig<128, 2>>(run);
  }
  BL_CHECK(dim <= 256 && !few);
  launch_decode<AnyConfig<256, 2>>(run);
}

}  // namespace bl::cuda
