// Decode kernels that dequantize in registers: the cache types of kOwnKernels, keys and values both
// of 64 or both of 128 elements, at most kFewRows query rows.

#include "backend/cuda/attention/attention_decode_run.cuh"

namespace bl::cuda {
namespace {

template <CacheTypes kTypes>
void launch_of(const DecodeRun& run) {
  if (run.params.k_row.dim == 64) return launch_decode_few<kTypes, 64, FragmentSource::kCodes>(run);
  BL_CHECK(run.params.k_row.dim == 128);
  launch_decode_few<kTypes, 128, FragmentSource::kCodes>(run);
}

}  // namespace

void launch_decode_codes(const DecodeRun& run, CacheTypes types) {
  BL_CHECK(launch_own(types, [&](auto constant) { launch_of<constant()>(run); }));
}

}  // namespace bl::cuda
