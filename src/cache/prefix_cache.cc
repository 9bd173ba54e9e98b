#include "cache/prefix_cache.h"

#include <algorithm>

#include "base/check.h"
#include "ops/kv_layout.h"

namespace bl {

using Node = PrefixIndex::Node;

PrefixCache::~PrefixCache() {
  for (const Node node : index_.by_age()) pool_.drop(index_.page(node));
}

std::int32_t PrefixCache::shared_pages(std::string_view salt,
                                       std::span<const std::int32_t> ids) const {
  std::int32_t shared = 0;
  Node node = index_.find_root(salt);
  while (node != PrefixIndex::kNone && ids.size() >= kPageSlots) {
    node = index_.find_full(node, ids.first(kPageSlots));
    if (node == PrefixIndex::kNone || pool_.is_idle(index_.page(node))) break;
    ++shared;
    ids = ids.subspan(kPageSlots);
  }
  return shared;
}

std::int64_t PrefixCache::adopt(std::string_view salt, std::span<const std::int32_t> ids,
                                PageTable& table, PrefixCursor& cursor) {
  BL_CHECK(table.capacity() == cursor.tokens);
  Node node = cursor.tokens == 0 ? index_.find_root(salt) : cursor.node;
  std::span<const std::int32_t> rest = ids.subspan(static_cast<std::size_t>(
      std::min<std::int64_t>(cursor.tokens, static_cast<std::int64_t>(ids.size()))));
  while (node != PrefixIndex::kNone && rest.size() >= kPageSlots) {
    const Node child = index_.find_full(node, rest.first(kPageSlots));
    if (child == PrefixIndex::kNone) break;
    const std::int32_t page = index_.page(child);
    table.share({&page, 1});
    ++stats_.pages_shared;
    node = child;
    cursor = {child, cursor.tokens + kPageSlots};
    rest = rest.subspan(kPageSlots);
  }
  std::int64_t tokens = cursor.tokens;
  const PrefixIndex::Longest longest = index_.find_longest(node, rest);
  if (longest.tokens >= least_copied_) {
    copy_beginning(table, longest.node);
    if (table.capacity() > cursor.tokens) tokens += longest.tokens;
  }
  if (cursor.node != PrefixIndex::kNone) index_.touch_text(cursor.node);
  return tokens;
}

// The page of `from` once more, for a text that goes on in another way. Where memory is short, the
// page itself, if nobody else needs it.
void PrefixCache::copy_beginning(PageTable& table, Node from) {
  const std::int32_t source = index_.page(from);
  const bool was_idle = pool_.is_idle(source);
  pool_.retain(source);  // not to be evicted for its own copy
  if (reserve(table, table.capacity() + 1)) {
    copy_(table.pages().back(), source);
    ++stats_.pages_copied;
    index_.touch_text(from);
  } else if (was_idle && !index_.has_children(from)) {
    forget(from);
    table.share({&source, 1});
  }
  pool_.release(source);
}

void PrefixCache::count(std::int64_t asked, std::int64_t found) {
  ++stats_.lookups;
  stats_.tokens_asked += asked;
  stats_.tokens_found += found;
}

bool PrefixCache::reserve(PageTable& table, std::int64_t tokens) {
  const std::int64_t wanted = (tokens + kPageSlots - 1) / kPageSlots;
  const std::int64_t missing = wanted - static_cast<std::int64_t>(table.pages().size());
  if (missing > available()) return false;
  if (missing > 0 && !make_room(static_cast<std::int32_t>(missing))) return false;
  return table.reserve(tokens);
}

bool PrefixCache::make_room(std::int32_t pages) {
  while (pool_.free_pages() < pages) {
    if (!evict_one()) return false;
  }
  return true;
}

// An idle page is never older than the pages behind it, so the oldest idle one is the end of a
// text. Pages in use are young whatever their age says.
bool PrefixCache::evict_one() {
  if (pool_.idle_pages() == 0) return false;
  for (std::int64_t left = index_.size(); left > 0; --left) {
    const Node node = index_.by_age().front();
    if (pool_.is_idle(index_.page(node)) && !index_.has_children(node)) {
      forget(node);
      ++stats_.pages_evicted;
      return true;
    }
    index_.touch(node);
  }
  return false;
}

void PrefixCache::forget(Node node) {
  const std::int32_t page = index_.page(node);
  index_.erase(node);
  pool_.drop(page);
}

// A page that holds a beginning of what a newer one holds, and that nobody uses.
void PrefixCache::forget_superseded(Node by) {
  const Node other = index_.neighbour_before(by);
  if (other == PrefixIndex::kNone || !pool_.is_idle(index_.page(other))) return;
  const auto beginning = index_.ids(other);
  const auto whole = index_.ids(by);
  if (beginning.size() < whole.size() &&
      std::equal(beginning.begin(), beginning.end(), whole.begin())) {
    forget(other);
  }
}

void PrefixCache::publish(std::string_view salt, std::span<const std::int32_t> ids,
                          PageTable& table, PrefixCursor& cursor) {
  while (cursor.tokens + kPageSlots <= static_cast<std::int64_t>(ids.size())) {
    const auto own = ids.subspan(static_cast<std::size_t>(cursor.tokens), kPageSlots);
    const auto place = static_cast<std::size_t>(cursor.tokens / kPageSlots);
    const std::int32_t page = table.pages()[place];
    const Node parent = cursor.tokens == 0 ? index_.find_root(salt) : cursor.node;
    Node node = index_.find_full(parent, own);
    if (node != PrefixIndex::kNone) {
      if (index_.page(node) != page) {
        table.replace(place, index_.page(node));
        ++stats_.pages_replaced;
      }
    } else {
      if (const Node part = index_.node_of(page); part != PrefixIndex::kNone) forget(part);
      node = index_.insert(cursor.tokens == 0 ? index_.root(salt) : cursor.node, own, page);
      pool_.keep(page);
      forget_superseded(node);
    }
    cursor = {node, cursor.tokens + kPageSlots};
  }
}

void PrefixCache::publish_all(std::string_view salt, std::span<const std::int32_t> ids,
                              PageTable& table, PrefixCursor& cursor) {
  publish(salt, ids, table, cursor);
  const auto rest = ids.subspan(static_cast<std::size_t>(cursor.tokens));
  if (rest.empty() || static_cast<std::int64_t>(rest.size()) < least_copied_) return;
  const std::int32_t page = table.pages()[static_cast<std::size_t>(cursor.tokens / kPageSlots)];
  if (const Node part = index_.node_of(page); part != PrefixIndex::kNone) forget(part);
  const Node known = cursor.tokens == 0 ? index_.find_root(salt) : cursor.node;
  const PrefixIndex::Longest longest = index_.find_longest(known, rest);
  if (longest.tokens == static_cast<std::int64_t>(rest.size())) return;
  const Node node = index_.insert(cursor.tokens == 0 ? index_.root(salt) : cursor.node, rest, page);
  pool_.keep(page);
  forget_superseded(node);
}

std::int64_t PrefixCache::truncate(PageTable& table, PrefixCursor& cursor, std::int64_t tokens) {
  if (cursor.tokens > tokens) {
    while (cursor.tokens > tokens) {
      cursor = {index_.parent(cursor.node), cursor.tokens - kPageSlots};
    }
    if (cursor.tokens == 0) cursor = {};
    table.truncate(cursor.tokens);
    return cursor.tokens;
  }
  table.truncate(tokens);
  if (table.pages().empty()) return tokens;
  // A beginning of this page that was published while it was being filled: nobody else holds it.
  const Node part = index_.node_of(table.pages().back());
  if (part == PrefixIndex::kNone || part == cursor.node) return tokens;
  const auto published = static_cast<std::int64_t>(index_.ids(part).size());
  if (cursor.tokens + published > tokens) forget(part);
  return tokens;
}

void PrefixCache::release(PageTable& table, PrefixCursor& cursor) {
  if (!table.pages().empty()) {
    const Node last = index_.node_of(table.pages().back());
    if (last != PrefixIndex::kNone) {
      index_.touch_text(last);
    } else if (cursor.node != PrefixIndex::kNone) {
      index_.touch_text(cursor.node);
    }
  }
  table.truncate(0);
  cursor = {};
}

}  // namespace bl
