#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace bl {

// Which pages are free, and how many tables refer to each that is not.
class PagePool {
 public:
  explicit PagePool(std::int32_t pages);

  std::int32_t pages() const { return static_cast<std::int32_t>(references_.size()); }
  std::int32_t free_pages() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t references(std::int32_t page) const;

  // A free page, with one reference; nothing when there is none. The page given back last comes
  // first: its memory is the warmest.
  std::optional<std::int32_t> take();
  void retain(std::int32_t page);   // one more reference to a page in use
  void release(std::int32_t page);  // one less; without references it is free

 private:
  std::vector<std::int32_t> references_;
  std::vector<std::int32_t> free_;
};

}  // namespace bl
