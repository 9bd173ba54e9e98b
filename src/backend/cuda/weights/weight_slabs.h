#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/cuda/device/device_memory.h"

namespace bl::cuda {

// Device memory for weights: small allocations share slabs, because the runtime rounds each of its
// own up to 2 MiB. A slab lives as long as one of its allocations.
class WeightSlabs {
 public:
  explicit WeightSlabs(DeviceMemory& memory) : memory_(memory) {}

  // Takes one slab for all allocations up to release(). Throws kOutOfMemory.
  void reserve(std::size_t bytes);
  void release() { reserved_.reset(); }
  // Returns 256-byte aligned device memory. Throws kOutOfMemory.
  std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  struct Slab {
    std::weak_ptr<std::byte> memory;
    std::size_t used = 0;
    std::size_t size = 0;
  };
  std::shared_ptr<std::byte> add(std::size_t bytes);

  DeviceMemory& memory_;
  std::shared_ptr<std::byte> reserved_;
  std::vector<Slab> slabs_;
};

}  // namespace bl::cuda
