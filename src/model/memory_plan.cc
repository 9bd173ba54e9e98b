#include "model/memory_plan.h"

#include <algorithm>
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
  // A config may ask for more than an address space holds: then the plan says as much as it can.
  if (__builtin_mul_overflow(page_bytes(layers), static_cast<std::size_t>(pages), &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<std::size_t>(sequences), &bytes)) {
    return std::numeric_limits<std::size_t>::max() / 4;
  }
  return bytes;
}

std::int64_t longest_context(std::span<const KvLayout> layers, const MemoryPlan& plan,
                             std::size_t available, std::int64_t limit) {
  const std::size_t fixed = plan.weights + plan.work + plan.adapters;
  if (fixed > available) return 0;
  const std::size_t page = page_bytes(layers);
  if (page == 0) return limit;
  const auto pages = static_cast<std::int64_t>((available - fixed) / page);
  return std::min(limit, pages * kPageSlots);
}

}  // namespace bl
