#pragma once
#include <optional>

#include "cache/page_table.h"
#include "cache/prefix_cache.h"

namespace bl {

// Pages of a text that somebody beside the engine's thread works with: in calls on that thread
// alone (EngineCore::lend). Empty once the engine is gone.
struct LentPages {
  explicit LentPages(PagePool& pool) : table(std::in_place, pool) {}

  std::optional<PageTable> table;
  PrefixCursor cursor;
};

}  // namespace bl
