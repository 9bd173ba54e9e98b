#include "cache/prefix_cache.h"

#include <algorithm>

#include "base/check.h"
#include "ops/kv_layout.h"

namespace bl {

using Node = PrefixIndex::Node;

PrefixCache::~PrefixCache() {
  for (const Node node : index_.by_age()) pool_.drop(index_.page(node));
}

// Whether anyone but the index refers to a node's page.
bool PrefixCache::is_in_use(Node node) const {
  return !index_.on_host(node) && !pool_.is_idle(index_.page(node));
}

std::int32_t PrefixCache::shared_pages(std::string_view salt, std::span<const std::int32_t> ids,
                                       SharedBeginning& known) const {
  // Both counters only grow, so their sum changes if either does.
  const std::uint64_t changes = index_.changes() + pool_.changes();
  if (known.changes == changes) return known.pages;
  known.changes = changes;
  if (known.pages == 0 || index_.number(known.node) != known.number) {
    known.pages = 0;
    known.node = index_.find_root(salt);
  }
  // A sequence that holds a page holds all pages before it.
  for (; known.pages > 0 && !is_in_use(known.node); --known.pages) {
    known.node = index_.parent(known.node);
  }
  Node node = known.node;
  ids = ids.subspan(static_cast<std::size_t>(known.pages) * kPageSlots);
  while (node != PrefixIndex::kNone && ids.size() >= kPageSlots) {
    node = index_.find_full(node, ids.first(kPageSlots));
    if (node == PrefixIndex::kNone || !is_in_use(node)) break;
    known.node = node;
    ++known.pages;
    ids = ids.subspan(kPageSlots);
  }
  if (known.pages > 0) known.number = index_.number(known.node);
  return known.pages;
}

std::int64_t PrefixCache::known_tokens(std::string_view salt,
                                       std::span<const std::int32_t> ids) const {
  std::int64_t tokens = 0;
  Node node = index_.find_root(salt);
  while (node != PrefixIndex::kNone && ids.size() >= kPageSlots) {
    node = index_.find_full(node, ids.first(kPageSlots));
    if (node == PrefixIndex::kNone) break;
    tokens += kPageSlots;
    ids = ids.subspan(kPageSlots);
  }
  return tokens;
}

void PrefixCache::begin_step(const TierRates& rates, std::int64_t restored_pages) {
  rates_ = rates;
  restorable_ = restored_pages;
}

// Returns the last full page of the text that is known, in either tier.
Node PrefixCache::last_known(Node node, std::span<const std::int32_t> ids) const {
  while (node != PrefixIndex::kNone && ids.size() >= kPageSlots) {
    const Node child = index_.find_full(node, ids.first(kPageSlots));
    if (child == PrefixIndex::kNone) break;
    node = child;
    ids = ids.subspan(kPageSlots);
  }
  return node;
}

std::int64_t PrefixCache::adopt(std::string_view salt, std::span<const std::int32_t> ids,
                                PageTable& table, PrefixCursor& cursor) {
  BL_CHECK(table.capacity() == cursor.tokens);
  Node node = cursor.tokens == 0 ? index_.find_root(salt) : cursor.node;
  std::span<const std::int32_t> rest = ids.subspan(static_cast<std::size_t>(
      std::min<std::int64_t>(cursor.tokens, static_cast<std::int64_t>(ids.size()))));
  cursor.waits = false;
  // Touch the requested pages first, so that they are not evicted to make room for their beginning.
  if (tier_ != nullptr) index_.touch_text(last_known(node, rest));
  while (node != PrefixIndex::kNone && rest.size() >= kPageSlots) {
    const Node child = index_.find_full(node, rest.first(kPageSlots));
    if (child == PrefixIndex::kNone) break;
    if (index_.on_host(child)) {
      cursor.waits = restorable_ <= 0;
      if (cursor.waits || !restore(child)) return cursor.tokens;
    }
    const std::int32_t page = index_.page(child);
    table.share({&page, 1});
    ++stats_.pages_shared;
    node = child;
    cursor.node = child;
    cursor.tokens += kPageSlots;
    rest = rest.subspan(kPageSlots);
  }
  std::int64_t tokens = cursor.tokens;
  const PrefixIndex::Longest longest = index_.find_longest(node, rest);
  if (longest.tokens >= least_copied_ && copy_beginning(table, longest)) tokens += longest.tokens;
  if (cursor.node != PrefixIndex::kNone) index_.touch_text(cursor.node);
  return tokens;
}

// Gives the table a copy of the page of `longest`, for a text that continues differently. If memory
// is short, it takes over the page itself, provided that nobody else needs it. Returns false if
// there is no room.
bool PrefixCache::copy_beginning(PageTable& table, PrefixIndex::Longest longest) {
  const Node from = longest.node;
  if (index_.on_host(from)) {
    if (!is_worth_moving(longest.tokens, tier_->page_bytes(), rates_)) return false;
    if (!reserve(table, table.capacity() + 1, Eviction::kExchange)) return false;
    tier_->fetch(table.pages().back(), index_.host_slot(from));
    ++stats_.pages_restored;
    stats_.tokens_restored += longest.tokens;
    --restorable_;
    index_.touch_text(from);
    return true;
  }
  const std::int32_t source = index_.page(from);
  const bool was_idle = pool_.is_idle(source);
  const std::int64_t before = table.capacity();
  PageTable held(pool_);  // so that it is not evicted to make room for its own copy
  held.share({&source, 1});
  if (reserve(table, table.capacity() + 1)) {
    copy_(table.pages().back(), source);
    ++stats_.pages_copied;
    index_.touch_text(from);
  } else if (was_idle && !index_.has_children(from)) {
    forget(from);
    table.share({&source, 1});
  }
  return table.capacity() > before;
}

void PrefixCache::count(std::int64_t asked, std::int64_t found) {
  ++stats_.lookups;
  stats_.tokens_asked += asked;
  stats_.tokens_found += found;
}

bool PrefixCache::reserve(PageTable& table, std::int64_t tokens) {
  return reserve(table, tokens, Eviction::kOrdinary);
}

bool PrefixCache::reserve(PageTable& table, std::int64_t tokens, Eviction eviction) {
  const std::int64_t wanted = pages_for(tokens);
  const std::int64_t missing = wanted - static_cast<std::int64_t>(table.pages().size());
  if (missing > available()) return false;
  if (missing > 0 && !make_room(static_cast<std::int32_t>(missing), eviction)) return false;
  return table.reserve(tokens);
}

void PrefixCache::evict_all() {
  while (evict_one(Eviction::kOrdinary)) continue;
}

bool PrefixCache::make_room(std::int32_t pages, Eviction eviction) {
  while (pool_.free_pages() < pages) {
    if (!evict_one(eviction)) return false;
  }
  return true;
}

// Evicts the oldest idle page, which is the end of a text, since an idle page is never older than
// the pages after it. Pages in use that come up on the way are touched: they count as young.
bool PrefixCache::evict_one(Eviction eviction) {
  if (pool_.idle_pages() == 0) return false;
  for (std::int64_t left = index_.size(); left > 0; --left) {
    const Node node = index_.by_age().front();
    if (pool_.is_idle(index_.page(node)) && !index_.has_near_children(node)) {
      if (!store(node, eviction)) {
        drop_below(node);
        forget(node);
      }
      ++stats_.pages_evicted;
      return true;
    }
    index_.touch(node);
  }
  return false;
}

// Moves an idle page to the host. Returns false if that is impossible or not worth it.
bool PrefixCache::store(Node node, Eviction eviction) {
  if (tier_ == nullptr) return false;
  const auto tokens = static_cast<std::int64_t>(index_.ids(node).size());
  if (!is_worth_moving(tokens, tier_->page_bytes(), rates_)) return false;
  if (eviction == Eviction::kOrdinary) {
    while (tier_->free_slots() < 2) {
      if (!drop_oldest_of_host()) return false;
    }
  }
  const std::int32_t page = index_.page(node);
  const std::optional<std::int32_t> slot = tier_->store(page);
  if (!slot) return false;
  index_.move_to_host(node, *slot);
  pool_.drop(page);
  ++stats_.pages_stored;
  return true;
}

// Brings a page back from the host; the page before it must be in use.
bool PrefixCache::restore(Node node) {
  if (!make_room(1, Eviction::kExchange)) return false;
  const std::int32_t slot = index_.host_slot(node);
  PageTable taken(pool_);  // holds the page until the index has it
  if (!taken.reserve(1)) return false;
  const std::int32_t page = taken.pages().front();
  tier_->fetch(page, slot);
  index_.move_to_page(node, page);
  tier_->release(slot);
  pool_.keep(page);
  --restorable_;
  ++stats_.pages_restored;
  stats_.tokens_restored += kPageSlots;
  return true;
}

bool PrefixCache::drop_oldest_of_host() {
  const std::list<Node>& ages = index_.host_by_age();
  const auto last =
      std::find_if(ages.begin(), ages.end(), [&](Node node) { return !index_.has_children(node); });
  if (last == ages.end()) return false;
  drop_from_host(*last);
  return true;
}

void PrefixCache::drop_from_host(Node node) {
  tier_->release(index_.host_slot(node));
  index_.erase(node);
  ++stats_.pages_dropped;
}

// Pages after an evicted page can no longer be found, so they go too. All of them are on the host.
void PrefixCache::drop_below(Node node) {
  while (index_.has_children(node)) {
    Node last = index_.children(node).back();
    while (index_.has_children(last)) last = index_.children(last).back();
    drop_from_host(last);
  }
}

void PrefixCache::forget(Node node) {
  const std::int32_t page = index_.page(node);
  index_.erase(node);
  pool_.drop(page);
}

// Forgets an unused page whose tokens are only a beginning of those of a newer page.
void PrefixCache::forget_superseded(Node by) {
  const Node other = index_.neighbour_before(by);
  if (other == PrefixIndex::kNone) return;
  const bool on_host = index_.on_host(other);
  if (!on_host && !pool_.is_idle(index_.page(other))) return;
  const auto beginning = index_.ids(other);
  const auto whole = index_.ids(by);
  if (beginning.size() < whole.size() &&
      std::equal(beginning.begin(), beginning.end(), whole.begin())) {
    on_host ? drop_from_host(other) : forget(other);
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
    if (node != PrefixIndex::kNone && index_.on_host(node)) {
      if (const Node part = index_.node_of(page); part != PrefixIndex::kNone) forget(part);
      const std::int32_t slot = index_.host_slot(node);
      index_.move_to_page(node, page);
      tier_->release(slot);
      pool_.keep(page);
    } else if (node != PrefixIndex::kNone) {
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
  // If a beginning of this page was published while it was being filled, nobody else holds it.
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
