#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "backend/cpu/cpu_matrix.h"
#include "backend/cpu/pack_plan.h"
#include "base/thread_pool.h"
#include "format/weight_matrix.h"
#include "tensor/tensor.h"

namespace bl::cpu {

// Gives out memory for tiles. Small matrices lie one after the other in slabs of huge pages: each
// by itself would have small ones, and a step reads all of them. Not thread-safe.
class TileAllocator {
 public:
  // Aligned to 64 bytes. Throws kOutOfMemory.
  TileMemory allocate(std::size_t bytes);

 private:
  std::weak_ptr<const Buffer> slab_;  // lives as long as its matrices
  std::size_t used_ = 0;
};

// Turns matrices as files hold them into what the kernels read.
class Packer {
 public:
  explicit Packer(ThreadPool& threads) : threads_(threads) {}

  // Columns [0, out) of the matrix. Calls may come from several threads; they take turns.
  std::unique_ptr<CpuMatrix> pack(const WeightMatrix& matrix, std::int64_t out);

 private:
  CpuMatrix::Weights pack_one(const Exl2Matrix& matrix, std::int64_t out);
  CpuMatrix::Weights pack_one(const GptqMatrix& matrix, std::int64_t out);
  CpuMatrix::Weights pack_one(const DenseMatrix& matrix, std::int64_t out);
  // The layout that equals `layout`, if a matrix of this backend still has one.
  std::shared_ptr<const ActivationLayout> share(ActivationLayout layout);

  // Tiles as `plan` says, not written yet.
  QuantizedWeights empty_weights(const PackPlan& plan, std::int64_t out);

  ThreadPool& threads_;
  std::mutex turn_;
  TileAllocator tiles_;
  std::vector<std::weak_ptr<const ActivationLayout>> layouts_;
};

// Bytes that pack() would hold in memory of its own.
std::size_t packed_bytes(const WeightMatrix& matrix, std::int64_t out);

// The matrix back as F32 [in, out] in channel order: RN16((q − z) · scale), or the dense values.
Tensor unpack(const CpuMatrix& matrix);

}  // namespace bl::cpu
