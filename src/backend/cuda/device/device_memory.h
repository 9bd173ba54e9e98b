#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "ops/backend.h"

namespace bl::cuda {

// The only place where this backend allocates device memory, so that the memory in use can be
// compared with the plan.
class DeviceMemory {
 public:
  // `card` names the card in error messages.
  explicit DeviceMemory(std::string card) : card_(std::move(card)) {}

  // Returns memory aligned to 256 bytes, or null for 0 bytes. Throws kOutOfMemory.
  std::shared_ptr<std::byte> take(std::size_t bytes);
  // As take(), for memory that comes and goes: it is valid for work in `stream` from now until the
  // pointer is gone, and is then used again without waiting for the card. `stream` must outlive it.
  std::shared_ptr<std::byte> take_ordered(std::size_t bytes, cudaStream_t stream);
  MemoryUse use() const { return {counts_->now, counts_->peak}; }

 private:
  struct Counts {
    std::atomic<std::size_t> now = 0;
    std::atomic<std::size_t> peak = 0;
  };
  // Counts the bytes, and returns what frees them by `release`.
  template <class Release>
  std::shared_ptr<std::byte> counted(void* data, std::size_t bytes, Release release);
  // Throws unless the allocation succeeded.
  void check_taken(cudaError_t error, std::size_t bytes) const;
  // The card's pool for take_ordered(), or null where the driver has none.
  cudaMemPool_t pool();

  std::string card_;
  bool asked_for_pool_ = false;
  cudaMemPool_t pool_ = nullptr;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

// Whether a kernel can access this address: it is device memory or page-locked host memory.
bool is_reachable(const void* pointer);

}  // namespace bl::cuda
