#include "cache/prefix_index.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "ops/kv_layout.h"

namespace bl {
namespace {

// One round of a multiply-and-fold hash. Both multipliers are odd constants without structure.
std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 32;
  return hash * 0xd6e8feb86659fd93u;
}

std::uint64_t chain_hash(std::uint64_t parent, std::span<const std::int32_t> ids) {
  std::uint64_t hash = mix(parent, ids.size());
  for (const std::int32_t id : ids) hash = mix(hash, static_cast<std::uint32_t>(id));
  return hash;
}

std::int64_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return ends.first - a.begin();
}

}  // namespace

PrefixIndex::Node PrefixIndex::make_node() {
  if (unused_.empty()) {
    if (nodes_.size() == nodes_.capacity()) {
      const std::size_t more = std::max<std::size_t>(16, 2 * nodes_.size());
      unused_.reserve(more);  // so that free_node() never allocates
      nodes_.reserve(more);
    }
    nodes_.emplace_back();
    return static_cast<Node>(nodes_.size()) - 1;
  }
  const Node node = unused_.back();
  unused_.pop_back();
  return node;
}

void PrefixIndex::free_node(Node node) {
  at(node) = Entry();
  unused_.push_back(node);
}

PrefixIndex::Node PrefixIndex::find_root(std::string_view salt) const {
  const auto found = roots_.find(salt);
  return found == roots_.end() ? kNone : found->second;
}

PrefixIndex::Node PrefixIndex::root(std::string_view salt) {
  if (const Node known = find_root(salt); known != kNone) return known;
  const Node node = make_node();
  try {
    at(node).salt = salt;
    at(node).hash = std::hash<std::string_view>()(salt);
    roots_.emplace(salt, node);
  } catch (const std::bad_alloc&) {
    free_node(node);
    throw;
  }
  return node;
}

PrefixIndex::Node PrefixIndex::find_full(Node parent, std::span<const std::int32_t> ids) const {
  if (parent == kNone || ids.size() != kPageSlots) return kNone;
  const auto [begin, end] = full_.equal_range(chain_hash(at(parent).hash, ids));
  for (auto it = begin; it != end; ++it) {
    const Entry& entry = at(it->second);
    if (entry.parent == parent && std::equal(ids.begin(), ids.end(), entry.ids.begin())) {
      return it->second;
    }
  }
  return kNone;
}

// Returns the index at which a child with these ids is, or would be inserted.
std::size_t PrefixIndex::place_among(const Entry& parent, std::span<const std::int32_t> ids) const {
  const auto before = [&](Node child, std::span<const std::int32_t> value) {
    const std::vector<std::int32_t>& own = at(child).ids;
    return std::lexicographical_compare(own.begin(), own.end(), value.begin(), value.end());
  };
  return static_cast<std::size_t>(
      std::lower_bound(parent.children.begin(), parent.children.end(), ids, before) -
      parent.children.begin());
}

PrefixIndex::Longest PrefixIndex::find_longest(Node parent,
                                               std::span<const std::int32_t> ids) const {
  Longest best;
  if (parent == kNone || ids.empty()) return best;
  const std::vector<Node>& children = at(parent).children;
  // Children are sorted, so the one with the longest common beginning is next to where `ids` would
  // be.
  const std::size_t place = place_among(at(parent), ids);
  for (const std::size_t i : {place, place - 1}) {
    if (i >= children.size()) continue;
    const std::int64_t tokens = common_prefix(ids, at(children[i]).ids);
    if (tokens > best.tokens) best = {children[i], tokens};
  }
  return best;
}

PrefixIndex::Node PrefixIndex::insert(Node parent, std::span<const std::int32_t> ids,
                                      std::int32_t page) {
  BL_CHECK(parent != kNone && page >= 0 && !ids.empty() && ids.size() <= kPageSlots);
  BL_CHECK(is_root(parent) || (at(parent).ids.size() == kPageSlots && !on_host(parent)));
  BL_CHECK(node_of(page) == kNone);
  Node node = kNone;
  try {
    node = make_node();
    Entry& entry = at(node);
    entry.hash = chain_hash(at(parent).hash, ids);
    entry.number = ++changes_;
    entry.parent = parent;
    entry.page = page;
    entry.age = ages_.end();
    entry.ids.assign(ids.begin(), ids.end());
    entry.age = ages_.insert(ages_.end(), node);
    if (ids.size() == kPageSlots) full_.emplace(entry.hash, node);
    of_page_.emplace(page, node);
    std::vector<Node>& children = at(parent).children;
    const std::size_t place = place_among(at(parent), ids);
    children.insert(children.begin() + static_cast<std::ptrdiff_t>(place), node);
  } catch (const std::bad_alloc&) {
    if (node != kNone) {
      unlink(node);
      free_node(node);
    }
    drop_empty_root(parent);
    throw;
  }
  ++at(parent).near_children;
  return node;
}

void PrefixIndex::erase(Node node) {
  Entry& entry = at(node);
  BL_CHECK(!is_root(node) && entry.children.empty());
  const Node parent = entry.parent;
  std::vector<Node>& siblings = at(parent).children;
  siblings.erase(siblings.begin() +
                 static_cast<std::ptrdiff_t>(place_among(at(parent), entry.ids)));
  if (!on_host(node)) --at(parent).near_children;
  ++changes_;
  unlink(node);
  free_node(node);
  drop_empty_root(parent);
}

// Removes a node from all tables but its parent's list of children, in which it is not.
void PrefixIndex::unlink(Node node) {
  const Entry& entry = at(node);
  const auto [begin, end] = full_.equal_range(entry.hash);
  const auto known =
      std::find_if(begin, end, [&](const auto& item) { return item.second == node; });
  if (known != end) full_.erase(known);
  if (on_host(node)) {
    host_ages_.erase(entry.age);
    return;
  }
  if (node_of(entry.page) == node) of_page_.erase(entry.page);
  if (entry.age != ages_.end()) ages_.erase(entry.age);
}

void PrefixIndex::drop_empty_root(Node node) {
  if (!is_root(node) || !at(node).children.empty()) return;
  roots_.erase(at(node).salt);
  free_node(node);
}

PrefixIndex::Node PrefixIndex::node_of(std::int32_t page) const {
  const auto found = of_page_.find(page);
  return found == of_page_.end() ? kNone : found->second;
}

PrefixIndex::Node PrefixIndex::neighbour_before(Node node) const {
  const Entry& parent = at(at(node).parent);
  const std::size_t place = place_among(parent, at(node).ids);
  return place == 0 ? kNone : parent.children[place - 1];
}

void PrefixIndex::move_to_host(Node node, std::int32_t host_slot) {
  Entry& entry = at(node);
  BL_CHECK(!is_root(node) && entry.page >= 0 && entry.near_children == 0 && host_slot >= 0);
  ++changes_;
  of_page_.erase(entry.page);
  --at(entry.parent).near_children;
  entry.page = -1;
  entry.host_slot = host_slot;
  host_ages_.splice(host_ages_.end(), ages_, entry.age);
}

void PrefixIndex::move_to_page(Node node, std::int32_t page) {
  Entry& entry = at(node);
  BL_CHECK(on_host(node) && !on_host(entry.parent) && page >= 0 && node_of(page) == kNone);
  of_page_.emplace(page, node);
  ++changes_;
  ++at(entry.parent).near_children;
  entry.page = page;
  entry.host_slot = -1;
  ages_.splice(ages_.end(), host_ages_, entry.age);
}

void PrefixIndex::touch(Node node) {
  std::list<Node>& ages = on_host(node) ? host_ages_ : ages_;
  ages.splice(ages.end(), ages, at(node).age);
}

void PrefixIndex::touch_text(Node last) {
  for (Node node = last; node != kNone && !is_root(node); node = parent(node)) touch(node);
}

}  // namespace bl
