#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace bl {

// Counts the references to each page. A page without any is free. A page that only the prefix index
// refers to is idle: it may be evicted.
class PagePool {
 public:
  explicit PagePool(std::int32_t pages);

  std::int32_t pages() const { return static_cast<std::int32_t>(references_.size()); }
  std::int32_t free_pages() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t idle_pages() const { return idle_; }
  std::int32_t references(std::int32_t page) const;
  bool is_idle(std::int32_t page) const { return is_kept(page) && references(page) == 1; }
  // Increases whenever a page becomes idle or stops being idle.
  std::uint64_t changes() const { return changes_; }

  // Takes a free page with one reference, or nothing if none is free. The page released last comes
  // first, because its memory is the warmest.
  std::optional<std::int32_t> take();
  void retain(std::int32_t page);   // adds a reference to a page in use
  void release(std::int32_t page);  // removes a reference; without any the page is free

  // Adds and removes the index's own reference; a page has at most one.
  void keep(std::int32_t page);
  void drop(std::int32_t page);
  bool is_kept(std::int32_t page) const;

 private:
  void count_idle(std::int32_t more);

  std::vector<std::int32_t> references_;
  std::vector<bool> kept_;
  std::vector<std::int32_t> free_;
  std::int32_t idle_ = 0;
  std::uint64_t changes_ = 0;
};

}  // namespace bl
