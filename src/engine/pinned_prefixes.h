#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cache/page_table.h"

namespace bl {

// The beginnings of texts whose pages stay in the model's own memory until they are let go, by
// name. A page that several pins hold counts once.
class PinnedPrefixes {
 public:
  struct Pin {
    explicit Pin(PagePool& pool) : pages(pool) {}
    std::string salt;
    std::vector<std::int32_t> ids;  // of its pages, all full
    PageTable pages;
  };
  // Names are the caller's, and cost memory that is not the pool's.
  static constexpr std::int64_t kMostNames = 1024;
  static constexpr std::size_t kLongestName = 256;  // bytes
  // Throws kInvalidArgument for a name that is too long.
  static void check_name(const std::string& name);
  // Three quarters of the pool may be pinned: others must be able to work.
  static std::int32_t most_pages(std::int32_t pool_pages) {
    return pool_pages - (pool_pages + 3) / 4;
  }

  explicit PinnedPrefixes(PagePool& pool) : pool_(pool) {}

  // Holds the full pages among `pages`, which hold `ids`; a pin of that name is replaced. Where too
  // many or too much would be pinned it says so in one line, and nothing has changed; else empty.
  [[nodiscard]] std::string pin(const std::string& name, std::string salt,
                                std::span<const std::int32_t> ids,
                                std::span<const std::int32_t> pages);
  // False where there is none of that name.
  bool unpin(const std::string& name);
  const Pin* find(const std::string& name) const;
  const std::map<std::string, Pin>& all() const { return pins_; }

  std::int64_t size() const { return static_cast<std::int64_t>(pins_.size()); }
  std::int32_t pages() const { return pages_; }  // pinned

 private:
  std::set<std::int32_t> pages_beside(const std::string& name) const;

  PagePool& pool_;
  std::map<std::string, Pin> pins_;
  std::int32_t pages_ = 0;
};

}  // namespace bl
