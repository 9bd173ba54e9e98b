// Coded rows of whole groups, for few query rows.

#include "backend/cuda/attention/attention_decode_run.cuh"

namespace bl::cuda {
namespace {

template <CacheType kType>
void launch_of(const DecodeRun& run) {
  if (run.params.k_row.dim == 64) {
    return launch_decode<DecodeRoom<kType, 64, 1, DecodeWay::kCodes>>(run);
  }
  BL_CHECK(run.params.k_row.dim == 128);
  launch_decode<DecodeRoom<kType, 128, 1, DecodeWay::kCodes>>(run);
}

}  // namespace

void launch_decode_codes(const DecodeRun& run, CacheType type) {
  launch_for_codes(type, [&](auto constant) { launch_of<constant()>(run); });
}

}  // namespace bl::cuda
