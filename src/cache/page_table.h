#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_pool.h"

namespace bl {

// The pages of one sequence, in order of positions. Releases its references when destroyed. The
// pool must outlive it.
class PageTable {
 public:
  explicit PageTable(PagePool& pool) : pool_(&pool) {}
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;
  ~PageTable() { truncate(0); }

  std::span<const std::int32_t> pages() const { return pages_; }
  std::int64_t capacity() const;  // number of positions that have a slot

  // Makes room for positions [0, tokens). Returns false and changes nothing if the pool has too few
  // free pages. If it throws bad_alloc, some pages may have been added.
  [[nodiscard]] bool reserve(std::int64_t tokens);

  // Appends full pages of another sequence, which are shared from now on. All pages of this table
  // must be full.
  void share(std::span<const std::int32_t> pages);
  // Replaces the index-th page with one of the same content.
  void replace(std::size_t index, std::int32_t page);

  // Releases the pages that positions [0, tokens) do not need.
  void truncate(std::int64_t tokens);

  // The slot of a position's key and value in a pool: page · kPageSlots + slot in the page.
  std::int64_t slot(std::int64_t position) const;

 private:
  PagePool* pool_;
  std::vector<std::int32_t> pages_;
};

}  // namespace bl
