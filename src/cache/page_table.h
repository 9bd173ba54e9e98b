#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_pool.h"

namespace bl {

// The pages of one sequence, in order of positions. Gives its references back when it goes.
// The pool must outlive it.
class PageTable {
 public:
  explicit PageTable(PagePool& pool) : pool_(&pool) {}
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;
  ~PageTable() { truncate(0); }

  std::span<const std::int32_t> pages() const { return pages_; }
  std::int64_t capacity() const;  // positions that have a slot

  // Makes room for positions [0, tokens). False when the pool has too few free pages; then nothing
  // has changed. Throws bad_alloc, with some of the pages.
  [[nodiscard]] bool reserve(std::int64_t tokens);

  // Appends full pages of another sequence, shared from now on. Only onto a table whose own pages
  // are all full.
  void share(std::span<const std::int32_t> pages);
  // Takes another page of the same content in the place of the index-th.
  void replace(std::size_t index, std::int32_t page);

  // Gives back the pages that positions [0, tokens) do not need.
  void truncate(std::int64_t tokens);

  // Where the key and value of a position live: page · kPageSlots + slot in the page.
  std::int64_t slot(std::int64_t position) const;

 private:
  PagePool* pool_;
  std::vector<std::int32_t> pages_;
};

}  // namespace bl
