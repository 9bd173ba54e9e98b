#include "cache/page_pool.h"

#include "base/check.h"

namespace bl {

PagePool::PagePool(std::int32_t pages) {
  BL_CHECK(pages >= 0);
  references_.assign(static_cast<std::size_t>(pages), 0);
  free_.reserve(references_.size());
  for (std::int32_t page = pages; page > 0; --page) free_.push_back(page - 1);
}

std::int32_t PagePool::references(std::int32_t page) const {
  BL_CHECK(page >= 0 && page < pages());
  return references_[static_cast<std::size_t>(page)];
}

std::optional<std::int32_t> PagePool::take() {
  if (free_.empty()) return std::nullopt;
  const std::int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void PagePool::retain(std::int32_t page) {
  BL_CHECK(references(page) > 0);
  ++references_[static_cast<std::size_t>(page)];
}

void PagePool::release(std::int32_t page) {
  BL_CHECK(references(page) > 0);
  if (--references_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
}

}  // namespace bl
