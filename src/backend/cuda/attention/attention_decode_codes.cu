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
  switch (type) {
    case CacheType::kFp8:
      return launch_of<CacheType::kFp8>(run);
    case CacheType::kQ8:
      return launch_of<CacheType::kQ8>(run);
    case CacheType::kQ6:
      return launch_of<CacheType::kQ6>(run);
    case CacheType::kQ4:
      return launch_of<CacheType::kQ4>(run);
    case CacheType::kF32:
    case CacheType::kF16:
      break;
  }
  BL_CHECK(false);
}

}  // namespace bl::cuda
