#include "model/memory_plan.h"

#include <limits>

namespace bl {
namespace {

std::size_t page_bytes(std::span<const KvLayout> layers) {
  std::size_t bytes = 0;
  for (const KvLayout& layout : layers) bytes += layout.k_page_bytes() + layout.v_page_bytes();
  return bytes;
}

}  // namespace

std::size_t cache_bytes(std::span<const KvLayout> layers, std::int64_t context,
                        std::int64_t sequences) {
  const std::int64_t pages = pages_for(context);
  std::size_t bytes = 0;
  // A config may ask for more than an address space holds; the plan then saturates.
  if (__builtin_mul_overflow(page_bytes(layers), static_cast<std::size_t>(pages), &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<std::size_t>(sequences), &bytes)) {
    return std::numeric_limits<std::size_t>::max() / 4;
  }
  return bytes;
}

}  // namespace bl
