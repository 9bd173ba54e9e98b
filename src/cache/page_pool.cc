#include "cache/page_pool.h"

#include "base/check.h"

namespace bl {

PagePool::PagePool(std::int32_t pages) {
  BL_CHECK(pages >= 0);
  references_.assign(static_cast<std::size_t>(pages), 0);
  kept_.assign(static_cast<std::size_t>(pages), false);
  free_.reserve(references_.size());
  for (std::int32_t page = pages; page > 0; --page) free_.push_back(page - 1);
}

std::int32_t PagePool::references(std::int32_t page) const {
  BL_CHECK(page >= 0 && page < pages());
  return references_[static_cast<std::size_t>(page)];
}

bool PagePool::is_kept(std::int32_t page) const {
  BL_CHECK(page >= 0 && page < pages());
  return kept_[static_cast<std::size_t>(page)];
}

std::optional<std::int32_t> PagePool::take() {
  if (free_.empty()) return std::nullopt;
  const std::int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void PagePool::count_idle(std::int32_t more) {
  idle_ += more;
  ++changes_;
}

void PagePool::retain(std::int32_t page) {
  BL_CHECK(references(page) > 0);
  if (is_idle(page)) count_idle(-1);
  ++references_[static_cast<std::size_t>(page)];
}

void PagePool::release(std::int32_t page) {
  // The last reference to a kept page belongs to the index, which uses drop().
  BL_CHECK(references(page) > (is_kept(page) ? 1 : 0));
  if (--references_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
  if (is_idle(page)) count_idle(1);
}

void PagePool::keep(std::int32_t page) {
  BL_CHECK(references(page) > 0 && !is_kept(page));
  ++references_[static_cast<std::size_t>(page)];
  kept_[static_cast<std::size_t>(page)] = true;
}

void PagePool::drop(std::int32_t page) {
  BL_CHECK(is_kept(page));
  if (is_idle(page)) count_idle(-1);
  kept_[static_cast<std::size_t>(page)] = false;
  release(page);
}

}  // namespace bl
