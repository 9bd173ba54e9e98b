#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cache/page_table.h"

namespace bl {

// Prompts whose pages stay in the model's own memory until they are unpinned, by name. A page that
// several pins hold counts once.
//
// Invariant: at most kMostNames pins hold at most most_pages() pages.
class PinnedPrefixes {
 public:
  struct Pin {
    explicit Pin(PagePool& pool) : pages(pool) {}
    std::string salt;
    std::vector<std::int32_t> ids;  // the tokens of its pages, which are all full
    PageTable pages;
  };
  // Limits, since names cost memory besides the pool's.
  static constexpr std::int64_t kMostNames = 1024;
  static constexpr std::size_t kLongestName = 256;  // bytes
  // Throws kInvalidArgument for a name that is too long.
  static void check_name(const std::string& name);
  // At most three quarters of the pool may be pinned, so that other requests can still run.
  static std::int32_t most_pages(std::int32_t pool_pages) {
    return pool_pages - (pool_pages + 3) / 4;
  }

  explicit PinnedPrefixes(PagePool& pool) : pool_(pool) {}

  // Pins the full pages among `pages`, which hold `ids`, and replaces a pin of that name. Returns
  // an empty string, or one line that says why too much would be pinned; then nothing has changed.
  [[nodiscard]] std::string pin(const std::string& name, std::string salt,
                                std::span<const std::int32_t> ids,
                                std::span<const std::int32_t> pages);
  // False where there is no pin of that name.
  bool unpin(const std::string& name);
  const Pin* find(const std::string& name) const;
  const std::map<std::string, Pin>& all() const { return pins_; }

  std::int64_t size() const { return static_cast<std::int64_t>(pins_.size()); }
  std::int32_t pages() const { return pages_; }  // pinned ones

 private:
  std::set<std::int32_t> pages_beside(const std::string& name) const;

  PagePool& pool_;
  std::map<std::string, Pin> pins_;
  std::int32_t pages_ = 0;
};

}  // namespace bl
