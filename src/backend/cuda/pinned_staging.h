#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace bl::cuda {

// Page-locked host memory through which small uploads go, so that they need no wait. Memory is
// handed out in order; the owner resets it when the copies are known to be done.
class PinnedStaging {
 public:
  explicit PinnedStaging(std::size_t bytes);
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;

  // Null when there is no room left.
  std::byte* take(std::size_t bytes);
  void reset() { used_ = 0; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
};

}  // namespace bl::cuda
