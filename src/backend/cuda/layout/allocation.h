#pragma once
#include <cstddef>

namespace bl::cuda {

// Parts of the weights' memory begin at multiples of this.
inline constexpr std::size_t kAllocationAlignment = 256;
// What `bytes` bytes take of it.
constexpr std::size_t allocation_bytes(std::size_t bytes) {
  return (bytes + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
}

}  // namespace bl::cuda
