#pragma once
#include <cstddef>
#include <memory>
#include <vector>

namespace bl::cuda {

// Device memory for weights: small pieces share slabs, because the runtime rounds each allocation
// up to 2 MiB. A slab lives as long as one of its pieces.
class WeightSlabs {
 public:
  // 256-byte aligned device memory. Throws kOutOfMemory.
  std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  struct Slab {
    std::weak_ptr<std::byte> memory;
    std::size_t used = 0;
    std::size_t size = 0;
  };
  std::vector<Slab> slabs_;
};

}  // namespace bl::cuda
