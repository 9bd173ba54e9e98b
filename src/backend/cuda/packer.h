#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "backend/cuda/cuda_matrix.h"
#include "ops/backend.h"

namespace bl::cuda {

// Turns the file's codes into CudaMatrix, on the card.
class Packer {
 public:
  explicit Packer(cudaStream_t stream) : stream_(stream) {}

  std::unique_ptr<CudaMatrix> pack(const WeightMatrix& matrix, std::int64_t out);
  // F32 [in, out] in original channel order, on the host.
  Tensor unpack(const CudaMatrix& matrix);
  std::size_t packed_bytes(const WeightMatrix& matrix, std::int64_t out);

 private:
  CodeWeights pack_codes(const Exl2Matrix& matrix, std::int64_t out);
  CodeWeights pack_codes(const GptqMatrix& matrix, std::int64_t out);
  DenseWeights pack_dense(const DenseMatrix& matrix, std::int64_t out);
  CodeWeights upload_plan(CodePackPlan plan);

  cudaStream_t stream_;
  WeightSlabs slabs_;
};

}  // namespace bl::cuda
