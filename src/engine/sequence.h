#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cache/page_table.h"

namespace bl {

// A text that a model computes: its tokens, and the pages with the keys and values of those that
// are computed. A plain value, which whoever runs the model keeps consistent.
struct Sequence {
  explicit Sequence(PagePool& pool) : pages(pool) {}

  std::vector<std::int32_t> ids;
  std::int64_t cached = 0;  // ids [0, cached) are in the cache
  std::int64_t reach = 0;   // the length that it may come to; some rotary embeddings depend on it
  PageTable pages;
};

inline std::span<const std::int32_t> first_ids(const Sequence& sequence, std::int64_t count) {
  return std::span(sequence.ids).first(static_cast<std::size_t>(count));
}

}  // namespace bl
