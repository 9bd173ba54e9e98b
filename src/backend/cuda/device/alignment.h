#pragma once
#include <cstdint>

#include "base/host_device.h"

namespace bl::cuda {

// Whether an address is a multiple of `bytes`; null is one of all.
BL_HD inline bool is_aligned(const void* at, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(at) % bytes == 0;
}

}  // namespace bl::cuda
