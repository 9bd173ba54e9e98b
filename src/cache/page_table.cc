#include "cache/page_table.h"

#include <utility>

#include "base/check.h"
#include "ops/kv_layout.h"

namespace bl {
PageTable::PageTable(PageTable&& other) noexcept
    : pool_(other.pool_), pages_(std::exchange(other.pages_, {})) {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(pages_, other.pages_);
  return *this;
}

std::int64_t PageTable::capacity() const {
  return static_cast<std::int64_t>(pages_.size()) * kPageSlots;
}

bool PageTable::reserve(std::int64_t tokens) {
  const std::size_t wanted = static_cast<std::size_t>(pages_for(tokens));
  if (wanted <= pages_.size()) return true;
  if (wanted - pages_.size() > static_cast<std::size_t>(pool_->free_pages())) return false;
  while (pages_.size() < wanted) {
    pages_.push_back(-1);  // may throw, so do it before taking a page that would leak
    pages_.back() = *pool_->take();
  }
  return true;
}

void PageTable::share(std::span<const std::int32_t> pages) {
  for (const std::int32_t page : pages) {
    pages_.push_back(page);
    pool_->retain(page);
  }
}

void PageTable::replace(std::size_t index, std::int32_t page) {
  BL_CHECK(index < pages_.size());
  pool_->retain(page);
  pool_->release(pages_[index]);
  pages_[index] = page;
}

void PageTable::truncate(std::int64_t tokens) {
  BL_CHECK(tokens >= 0);
  while (pages_.size() > static_cast<std::size_t>(pages_for(tokens))) {
    pool_->release(pages_.back());
    pages_.pop_back();
  }
}

std::int64_t PageTable::slot(std::int64_t position) const {
  BL_CHECK(position >= 0 && position < capacity());
  return std::int64_t{pages_[static_cast<std::size_t>(position / kPageSlots)]} * kPageSlots +
         position % kPageSlots;
}

}  // namespace bl
