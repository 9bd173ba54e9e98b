#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace bl::cuda {

// Page-locked host memory through which small uploads go, so that they need no wait. Memory is
// handed out in order, of one lane at a time; the owner begins a lane anew when its copies are
// known to be done, while those of the other may be under way.
class PinnedStaging {
 public:
  static constexpr int kLanes = 2;

  explicit PinnedStaging(std::size_t lane_bytes);
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;

  // Null when the lane has no room left.
  std::byte* take(std::size_t bytes);
  void begin(int lane);

 private:
  std::byte* data_ = nullptr;  // [kLanes][size_]
  std::size_t size_ = 0;
  std::byte* lane_ = nullptr;
  std::size_t used_ = 0;  // of the lane
};

}  // namespace bl::cuda
