#include "backend/cuda/pinned_staging.h"

#include "backend/cuda/cuda_check.h"

namespace bl::cuda {

PinnedStaging::PinnedStaging(std::size_t bytes) : size_(bytes) {
  void* data = nullptr;
  BL_CUDA_CHECK(cudaMallocHost(&data, bytes));
  data_ = static_cast<std::byte*>(data);
}

PinnedStaging::~PinnedStaging() { cudaFreeHost(data_); }

std::byte* PinnedStaging::take(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (size > size_ - used_) return nullptr;
  std::byte* piece = data_ + used_;
  used_ += size;
  return piece;
}

}  // namespace bl::cuda
