#pragma once
#include <cuda_runtime_api.h>

#include <memory>

#include "backend/cuda/weights/column_slice.h"
#include "backend/cuda/weights/cuda_matrix.h"
#include "backend/cuda/weights/load_stage.h"
#include "ops/backend.h"

namespace bl::cuda {

// Packs the file's codes into a CudaMatrix on the card. The work may still be running when a call
// returns; the stream orders it, and the file's memory is not read any more.
class Packer {
 public:
  Packer(DeviceMemory& memory, cudaStream_t stream)
      : memory_(memory), stream_(stream), slabs_(memory) {}

  // Takes the memory of all weights up to finish() at once.
  void reserve(std::size_t bytes);
  // Waits, and frees what only loading needs.
  void finish();
  std::shared_ptr<std::byte> take(std::size_t bytes) { return slabs_.take(bytes); }
  // Uploads through the stage while weights are being loaded; returns false otherwise.
  bool upload(std::byte* to, const std::byte* from, std::size_t bytes);

  std::unique_ptr<CudaMatrix> pack(const WeightMatrix& matrix, const PackOptions& options);
  // Returns F32 [in, out] on the host: features in their original order, columns as they were
  // packed.
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
  std::unique_ptr<LoadStage> stage_;  // created on first use
};

}  // namespace bl::cuda
