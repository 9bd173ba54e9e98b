#pragma once
#include <cstdint>
#include <span>

#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "engine/page_table_view.h"

namespace bl {

// Finds out what each page of a pool is used for, from all that may hold pages.
//
// Invariant: the view has one entry per page of the pool, whose references and state are the
// pool's.
class PageCensus {
 public:
  // `index` says how much of the cached pages is filled.
  PageCensus(const PagePool& pool, const PrefixIndex& index);

  // In each, `tokens` tokens are computed in `pages`, the last of which may be partly filled.
  void add_request(std::int64_t number, std::span<const std::int32_t> pages, std::int64_t tokens);
  void add_pin(std::span<const std::int32_t> pages, std::int64_t tokens);
  void add_loan(std::span<const std::int32_t> pages, std::int64_t tokens);

  // Call once, after everything was added.
  PageTableView take();

 private:
  template <class Visit>
  void visit(std::span<const std::int32_t> pages, std::int64_t tokens, Visit&& visit);

  PageTableView view_;
};

}  // namespace bl
