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

// Allocates memory for tiles. Small matrices share slabs of huge pages: allocated separately they
// would get small pages, and every step reads all of them. Not thread-safe.
class TileAllocator {
 public:
  // Aligned to 64 bytes. Throws kOutOfMemory.
  TileMemory allocate(std::size_t bytes);

 private:
  std::weak_ptr<const Buffer> slab_;  // lives as long as a matrix in it
  std::size_t used_ = 0;
};

// Converts matrices from the layout of files to the layout that kernels read.
class Packer {
 public:
  explicit Packer(ThreadPool& threads) : threads_(threads) {}

  // Packs columns [0, out) of the matrix. Thread-safe. Calls that use the pool take turns; with
  // `one_thread` the calling thread works alone, beside others that do the same.
  std::unique_ptr<CpuMatrix> pack(const WeightMatrix& matrix, std::int64_t out,
                                  bool one_thread = false);

 private:
  // `threads`: null if the calling thread works alone.
  CpuMatrix::Weights pack_one(const Exl2Matrix& matrix, std::int64_t out, ThreadPool* threads);
  CpuMatrix::Weights pack_one(const GptqMatrix& matrix, std::int64_t out, ThreadPool* threads);
  CpuMatrix::Weights pack_one(const DenseMatrix& matrix, std::int64_t out, ThreadPool* threads);
  // Returns an equal layout that another matrix still uses, or `layout` itself.
  std::shared_ptr<const ActivationLayout> share(ActivationLayout layout);

  // Allocates tiles for `plan` without writing them.
  QuantizedWeights empty_weights(const PackPlan& plan, std::int64_t out);

  ThreadPool& threads_;
  std::mutex turn_;    // to use the pool
  std::mutex shared_;  // guards the members below
  TileAllocator tiles_;
  std::vector<std::weak_ptr<const ActivationLayout>> layouts_;
};

// Bytes that the result of pack() would own.
std::size_t packed_bytes(const WeightMatrix& matrix, std::int64_t out);

// Returns the matrix as F32 [in, out] in channel order: RN16((q − z) · scale), or the dense values.
Tensor unpack(const CpuMatrix& matrix);

}  // namespace bl::cpu
