#include "text/jinja/dict.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja/operations.h"

namespace bl::jinja {
namespace {

constexpr std::size_t kIndexFrom = 9;  // with fewer entries, the dict is searched in order

std::size_t hash_text(std::string_view text) { return std::hash<std::string_view>{}(text); }

std::size_t mix(std::size_t hash, std::size_t more) { return (hash ^ more) * 0x9e3779b97f4a7c15u; }

// Equal values have equal hashes: 1, 1.0 and True are one key.
std::size_t hash_value(Runtime& rt, const Value& value) {
  switch (value.kind) {
    case Kind::kString:
      return hash_text(value.str());
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<std::int64_t>{}(value.integer);
    case Kind::kFloat:
      if (std::fabs(value.number) < 9.0e15 && value.number == std::floor(value.number)) {
        return std::hash<std::int64_t>{}(static_cast<std::int64_t>(value.number));
      }
      return std::hash<double>{}(std::fabs(value.number) < 9.0e15 ? value.number : 0.0);
    case Kind::kBigInt:
      return std::hash<double>{}(0.0);
    case Kind::kTuple: {
      std::size_t hash = 1;
      for (const Value& item : value.list()) hash = mix(hash, hash_value(rt, item));
      return hash;
    }
    case Kind::kList:
    case Kind::kDict:
      rt.fail("unhashable type: '{}'", type_name(value));
    case Kind::kDictView:
      if (value.view->part != DictView::Part::kValues) {
        rt.fail("unhashable type: '{}'", type_name(value));
      }
      return std::hash<const void*>{}(value.view);
    case Kind::kNone:
    case Kind::kUndefined:
      return static_cast<std::size_t>(value.kind);
    default:
      return std::hash<const void*>{}(value.text);
  }
}

// Returns the slot of `key` in an index over `entries`: the one that holds it, or the free one
// where it belongs.
template <class Equal>
std::uint32_t find_slot(std::span<const DictEntry> entries, const std::uint32_t* index,
                        std::uint32_t mask, std::size_t hash, const Equal& is_key) {
  auto slot = static_cast<std::uint32_t>(hash ^ hash >> 29) & mask;
  while (index[slot] != 0 && !is_key(entries[index[slot] - 1].key)) slot = (slot + 1) & mask;
  return slot;
}

template <class Hash, class Equal>
const Value* find_entry(const Dict& dict, const Hash& hash, const Equal& is_key) {
  if (dict.index == nullptr) {
    for (const DictEntry& entry : dict.list()) {
      if (is_key(entry.key)) return &entry.value;
    }
    return nullptr;
  }
  const std::uint32_t slot = find_slot(dict.list(), dict.index, dict.mask, hash(), is_key);
  return dict.index[slot] == 0 ? nullptr : &dict.entries[dict.index[slot] - 1].value;
}

}  // namespace

DictBuilder::DictBuilder(Runtime& rt, std::size_t expected) : rt_(rt), entries_(&rt.arena) {
  if (expected > 0) entries_.reserve(expected);
}

void DictBuilder::rebuild_index() {
  std::uint32_t slots = 32;
  while (slots < entries_.size() * 4) slots *= 2;
  index_ = rt_.arena.array<std::uint32_t>(slots);
  std::fill(index_, index_ + slots, 0u);
  mask_ = slots - 1;
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    const std::size_t hash = hash_value(rt_, entries_[i].key);
    const auto never = [](const Value&) { return false; };
    index_[find_slot(entries_, index_, mask_, hash, never)] = i + 1;
  }
}

void DictBuilder::set(const Value& key, const Value& value) {
  const std::size_t hash = hash_value(rt_, key);
  const auto is_key = [&](const Value& other) {
    rt_.step();
    return equal(rt_, other, key);
  };
  rt_.check_size(entries_.size());
  if (index_ == nullptr) {
    for (DictEntry& entry : entries_) {
      if (is_key(entry.key)) {
        entry.value = value;
        return;
      }
    }
    entries_.push_back({key, value});
    if (entries_.size() >= kIndexFrom) rebuild_index();
    return;
  }
  const std::uint32_t slot = find_slot(entries_, index_, mask_, hash, is_key);
  if (index_[slot] != 0) {
    entries_[index_[slot] - 1].value = value;
    return;
  }
  entries_.push_back({key, value});
  index_[slot] = static_cast<std::uint32_t>(entries_.size());
  if (entries_.size() * 2 > mask_) rebuild_index();
}

void DictBuilder::append(const Value& key, const Value& value) {
  if (index_ != nullptr) return set(key, value);
  entries_.push_back({key, value});
  if (entries_.size() >= kIndexFrom) rebuild_index();
}

bool DictBuilder::add(const Value& key) {
  const std::size_t before = entries_.size();
  set(key, Value::none());
  return entries_.size() > before;
}

void DictBuilder::update(const Dict& dict) {
  for (const DictEntry& entry : dict.list()) set(entry.key, entry.value);
}

Value DictBuilder::finish() {
  std::size_t depth = 0;
  for (const DictEntry& entry : entries_) {
    depth = std::max<std::size_t>({depth, entry.key.depth, entry.value.depth});
  }
  auto* dict = rt_.arena.make<Dict>();
  dict->entries = entries_.data();
  dict->size = static_cast<std::uint32_t>(entries_.size());
  dict->index = index_;
  dict->mask = mask_;
  Value value;
  value.kind = Kind::kDict;
  value.depth = rt_.deeper(depth);
  value.dict = dict;
  return value;
}

const Value* find(Runtime& rt, const Dict& dict, const Value& key) {
  const std::size_t hash = hash_value(rt, key);
  return find_entry(
      dict, [hash] { return hash; },
      [&](const Value& other) {
        rt.step();
        return equal(rt, other, key);
      });
}

const Value* find(const Dict& dict, std::string_view key) {
  return find_entry(
      dict, [key] { return hash_text(key); },
      [key](const Value& other) { return other.is_string() && other.str() == key; });
}

std::span<const Value> view_items(Runtime& rt, const DictView& view) {
  const Dict& dict = *view.dict.dict;
  auto* items = rt.arena.array<Value>(dict.size);
  for (std::uint32_t i = 0; i < dict.size; ++i) {
    const DictEntry& entry = dict.entries[i];
    items[i] = view.part == DictView::Part::kKeys     ? entry.key
               : view.part == DictView::Part::kValues ? entry.value
                                                      : rt.pair(entry.key, entry.value);
  }
  rt.step(dict.size);
  return {items, dict.size};
}

}  // namespace bl::jinja
