#pragma once
#include <cstddef>

namespace bl::cuda {

// Weights start at multiples of this in the card's memory.
inline constexpr std::size_t kAllocationAlignment = 256;
// Returns the bytes of the card's memory that `bytes` bytes take.
constexpr std::size_t allocation_bytes(std::size_t bytes) {
  return (bytes + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
}

}  // namespace bl::cuda
