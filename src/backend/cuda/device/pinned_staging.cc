#include "backend/cuda/device/pinned_staging.h"

#include "backend/cuda/device/cuda_check.h"

namespace bl::cuda {

PinnedStaging::PinnedStaging(std::size_t buffer_bytes) : size_(buffer_bytes) {
  void* data = nullptr;
  BL_CUDA_CHECK(cudaMallocHost(&data, kStepBuffers * buffer_bytes));
  data_ = static_cast<std::byte*>(data);
  begin(0);
}

PinnedStaging::~PinnedStaging() { cudaFreeHost(data_); }

std::byte* PinnedStaging::take(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (size > size_ - used_) return nullptr;
  std::byte* piece = buffer_ + used_;
  used_ += size;
  return piece;
}

void PinnedStaging::begin(int step_buffer) {
  buffer_ = data_ + static_cast<std::size_t>(step_buffer) * size_;
  used_ = 0;
}

}  // namespace bl::cuda
