#pragma once
#include <cuda_runtime_api.h>

#include <memory>

#include "backend/cuda/weights/column_slice.h"
#include "backend/cuda/weights/cuda_matrix.h"
#include "backend/cuda/weights/load_stage.h"
#include "ops/backend.h"

namespace bl::cuda {

// Turns the file's codes into CudaMatrix, on the card. What it starts may still be under way when
// it returns; the stream orders it, and the file's memory is not read any more.
class Packer {
 public:
  Packer(DeviceMemory& memory, cudaStream_t stream)
      : memory_(memory), stream_(stream), slabs_(memory) {}

  // Memory for all weights up to finish(), at once.
  void reserve(std::size_t bytes);
  // Waits, and gives back what loading alone needs.
  void finish();
  std::shared_ptr<std::byte> take(std::size_t bytes) { return slabs_.take(bytes); }
  // To the card through the stage, where weights are being loaded; false where they are not.
  bool upload(std::byte* to, const std::byte* from, std::size_t bytes);

  std::unique_ptr<CudaMatrix> pack(const WeightMatrix& matrix, const PackOptions& options);
  // F32 [in, out] in original channel order, columns as they were packed, on the host.
  Tensor unpack(const CudaMatrix& matrix);

 private:
  LoadStage& stage();
  // One for each weight format, so that a new format does not compile until it is packed here.
  // `columns`: as PackOptions::columns.
  CodeWeights pack_weights(const Exl2Matrix& exl2, std::int64_t out,
                           std::span<const std::int32_t> columns);
  CodeWeights pack_weights(const GptqMatrix& gptq, std::int64_t out,
                           std::span<const std::int32_t> columns);
  DenseWeights pack_weights(const DenseMatrix& dense, std::int64_t out,
                            std::span<const std::int32_t> columns);
  CodeWeights pack_codes(CodePackPlan plan, const FileCodes& file);
  DenseWeights pack_dense(const DenseMatrix& matrix, std::int64_t out);
  CodeWeights upload_plan(CodePackPlan plan);
  void pack_slice(const CodeWeights& weights, const FileCodes& file, std::int64_t first,
                  std::int64_t columns);

  DeviceMemory& memory_;
  cudaStream_t stream_;
  WeightSlabs slabs_;
  std::unique_ptr<LoadStage> stage_;  // made when it is needed
};

}  // namespace bl::cuda
