// What the kernels of act_f16.h can take: host code, for planners.

#include "backend/cuda/gemm/activations/act_f16.h"

#include "backend/cuda/device/alignment.h"

namespace bl::cuda {

bool fits_act_f16_smem(int compute_capability, std::int64_t in, std::int64_t k) {
  const std::int64_t most = compute_capability >= 80 ? kMostSmemBytes : kPlainSmemBytes;
  return in % 8 == 0 && k % 8 == 0 && in * 2 <= most;
}

bool can_fuse_norm_act_f16(const TensorView& x, const NormArgs& norm) {
  return x.columns() % 8 == 0 && x.columns() <= kWidestNormedRow && takes_packs(x, 4) &&
         array_takes_packs(norm.weight, 4) && array_takes_packs(norm.bias, 4);
}

}  // namespace bl::cuda
