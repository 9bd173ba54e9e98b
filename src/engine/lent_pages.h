#pragma once
#include <optional>

#include "cache/page_table.h"
#include "cache/prefix_cache.h"

namespace bl {

// The pages of a text that another thread works with (EngineCore::lend): a plain value, which is
// used only in calls on the engine's thread. The table is empty once the engine is gone.
struct LentPages {
  explicit LentPages(PagePool& pool) : table(std::in_place, pool) {}

  std::optional<PageTable> table;
  PrefixCursor cursor;
};

}  // namespace bl
