#pragma once
#include <memory>
#include <vector>

#include "cache/page_pool.h"
#include "cache/prefix_cache.h"
#include "engine/lent_pages.h"

namespace bl {

// Page tables lent to other threads, which fill and read them in calls on the engine's thread.
//
// Invariant: a table that nobody else refers to any more gives its pages back with the next
// take_back(); with this object, all tables give them back, whoever refers to them.
class PageLoans {
 public:
  PageLoans(PagePool& pool, PrefixCache& cache) : pool_(pool), cache_(cache) {}
  PageLoans(const PageLoans&) = delete;
  PageLoans& operator=(const PageLoans&) = delete;
  ~PageLoans() {
    for (const std::shared_ptr<LentPages>& lent : lent_) lent->table.reset();
  }

  std::shared_ptr<LentPages> lend() {
    return lent_.emplace_back(std::make_shared<LentPages>(pool_));
  }
  void take_back() noexcept {
    std::erase_if(lent_, [this](const std::shared_ptr<LentPages>& lent) {
      if (lent.use_count() > 1) return false;
      cache_.release(*lent->table, lent->cursor);
      return true;
    });
  }
  bool any() const { return !lent_.empty(); }
  const std::vector<std::shared_ptr<LentPages>>& all() const { return lent_; }

 private:
  PagePool& pool_;
  PrefixCache& cache_;
  std::vector<std::shared_ptr<LentPages>> lent_;
};

}  // namespace bl
