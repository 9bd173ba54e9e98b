#include "backend/cuda/gemm/activations/act_f16.h"

#include "backend/cuda/device/alignment.h"
#include "backend/cuda/weights/cuda_matrix.h"

namespace bl::cuda {
namespace {

// cuBLASLt needs rows of whole 16 bytes.
bool library_can_read(const DenseWeights& weights, std::int64_t in) {
  return in % (16 / static_cast<std::int64_t>(size_of(weights.type))) == 0;
}

}  // namespace

ActF16 act_f16_for(const PackedMatrix* weight) {
  ActF16 rows;
  if (const CodeWeights* codes = cuda_matrix(weight).codes()) {
    rows.k = std::int64_t{codes->view.k_steps} * kKStepSize;
    if (!codes->is_identity) rows.feature_of_k = codes->feature_of_k;
  } else {
    rows.k = weight->in();
    rows.type = cuda_matrix(weight).dense()->type;
  }
  return rows;
}

bool reads_act_f16(const PackedMatrix* weight) {
  const DenseWeights* dense = cuda_matrix(weight).dense();
  return dense == nullptr || (dense->type != DType::kF32 && library_can_read(*dense, weight->in()));
}

bool fits_act_f16_smem(int compute_capability, std::int64_t in, std::int64_t k) {
  const std::int64_t most = compute_capability >= 80 ? kMostSmemBytes : kPlainSmemBytes;
  return in % 8 == 0 && k % 8 == 0 && in * 2 <= most;
}

bool can_fuse_norm_act_f16(const TensorView& x, const NormArgs& norm) {
  return x.columns() % 8 == 0 && x.columns() <= kWidestNormedRow && allows_vector_access(x, 4) &&
         array_allows_vector_access(norm.weight, 4) && array_allows_vector_access(norm.bias, 4);
}

}  // namespace bl::cuda
