#include "backend/cuda/weight_slabs.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_check.h"

namespace bl::cuda {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kSlabBytes = std::size_t{64} << 20;

std::shared_ptr<std::byte> allocate(std::size_t bytes) {
  void* data = nullptr;
  BL_CUDA_CHECK(cudaMalloc(&data, bytes));
  return {static_cast<std::byte*>(data), [](std::byte* p) { cudaFree(p); }};
}

}  // namespace

std::shared_ptr<std::byte> WeightSlabs::take(std::size_t bytes) {
  const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (Slab& slab : slabs_) {
    if (slab.size - slab.used < size) continue;
    if (const std::shared_ptr<std::byte> memory = slab.memory.lock()) {
      std::byte* piece = memory.get() + slab.used;
      slab.used += size;
      return {memory, piece};
    }
  }
  if (size >= kSlabBytes) return allocate(size);
  std::shared_ptr<std::byte> memory = allocate(kSlabBytes);
  std::erase_if(slabs_, [](const Slab& slab) { return slab.memory.expired(); });
  slabs_.push_back({memory, size, kSlabBytes});
  return memory;
}

}  // namespace bl::cuda
