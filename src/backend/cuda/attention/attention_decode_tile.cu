// Coded rows of any size, by way of tiles of binary16.

#include "backend/cuda/attention/attention_decode_run.cuh"

namespace bl::cuda {
namespace {

template <CacheType kType>
void launch_of(const DecodeRun& run) {
  const int dim = std::max(run.params.k_row.dim, run.params.v_row.dim);
  if (dim <= 64) return launch_decode<DecodeRoom<kType, 64, 2, DecodeWay::kTile>>(run);
  if (dim <= 128) return launch_decode<DecodeRoom<kType, 128, 2, DecodeWay::kTile>>(run);
  BL_CHECK(dim <= 256);
  launch_decode<DecodeRoom<kType, 256, 2, DecodeWay::kTile>>(run);
}

}  // namespace

void launch_decode_tile(const DecodeRun& run, CacheType type) {
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
