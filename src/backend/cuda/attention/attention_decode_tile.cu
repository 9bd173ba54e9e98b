// Decode kernels that dequantize to binary16 tiles in shared memory: the cache types of
// kOwnKernels, for head sizes and numbers of query rows that attention_decode_codes.cu does not
// take.

#include "backend/cuda/attention/attention_decode_run.cuh"

namespace bl::cuda {
namespace {

template <CacheTypes kTypes>
void launch_of(const DecodeRun& run) {
  const int dim = std::max(run.params.k_row.dim, run.params.v_row.dim);
  if (dim <= 64) return launch_decode<DecodeConfig<kTypes, 64, 2, FragmentSource::kTile>>(run);
  if (dim <= 128) return launch_decode<DecodeConfig<kTypes, 128, 2, FragmentSource::kTile>>(run);
  BL_CHECK(dim <= 256);
  launch_decode<DecodeConfig<kTypes, 256, 2, FragmentSource::kTile>>(run);
}

}  // namespace

void launch_decode_tile(const DecodeRun& run, CacheTypes types) {
  BL_CHECK(launch_own(types, [&](auto constant) { launch_of<constant()>(run); }));
}

}  // namespace bl::cuda
