#include "backend/cuda/weights/weight_slabs.h"

#include "backend/cuda/layout/allocation.h"

namespace bl::cuda {
namespace {

constexpr std::size_t kSlabBytes = std::size_t{64} << 20;

}  // namespace

std::shared_ptr<std::byte> WeightSlabs::add(std::size_t bytes) {
  std::shared_ptr<std::byte> memory = memory_.take(bytes);
  std::erase_if(slabs_, [](const Slab& slab) { return slab.memory.expired(); });
  slabs_.push_back({memory, 0, bytes});
  return memory;
}

void WeightSlabs::reserve(std::size_t bytes) { reserved_ = add(bytes); }

std::shared_ptr<std::byte> WeightSlabs::take(std::size_t bytes) {
  const std::size_t size = allocation_bytes(bytes);
  for (Slab& slab : slabs_) {
    if (slab.size - slab.used < size) continue;
    if (const std::shared_ptr<std::byte> memory = slab.memory.lock()) {
      std::byte* allocation = memory.get() + slab.used;
      slab.used += size;
      return {memory, allocation};
    }
  }
  if (size >= kSlabBytes) return memory_.take(size);
  std::shared_ptr<std::byte> memory = add(kSlabBytes);
  slabs_.back().used = size;
  return memory;
}

}  // namespace bl::cuda
