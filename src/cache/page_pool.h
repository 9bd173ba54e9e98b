#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace bl {

// Which pages are free, how many refer to each that is not, and which are only remembered: a page
// that the prefix index keeps, and nobody else refers to, is idle; its content may be given up.
class PagePool {
 public:
  explicit PagePool(std::int32_t pages);

  std::int32_t pages() const { return static_cast<std::int32_t>(references_.size()); }
  std::int32_t free_pages() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t idle_pages() const { return idle_; }
  std::int32_t references(std::int32_t page) const;
  bool is_idle(std::int32_t page) const { return is_kept(page) && references(page) == 1; }
  // Changes whenever a page becomes idle, or is idle no more.
  std::uint64_t changes() const { return changes_; }

  // A free page, with one reference; nothing when there is none. The page given back last comes
  // first: its memory is the warmest.
  std::optional<std::int32_t> take();
  void retain(std::int32_t page);   // one more reference to a page in use
  void release(std::int32_t page);  // one less; without references it is free

  // The index's own reference, one a page at most.
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
