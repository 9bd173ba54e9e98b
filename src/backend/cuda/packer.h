#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <span>
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
  // What a file holds of a quantized matrix; empty what its format has not.
  struct FileCodes {
    std::span<const std::uint32_t> words;
    std::span<const std::uint32_t> scale_codes;
    std::span<const std::uint16_t> scales;
    std::span<const std::uint16_t> zeros;
  };
  CodeWeights pack_codes(CodePackPlan plan, const FileCodes& file);
  DenseWeights pack_dense(const DenseMatrix& matrix, std::int64_t out);
  CodeWeights upload_plan(CodePackPlan plan);
  template <class T>
  const T* upload(std::byte* to, const std::vector<T>& values);

  cudaStream_t stream_;
  WeightSlabs slabs_;
};

}  // namespace bl::cuda
