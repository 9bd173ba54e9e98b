#pragma once
#include <memory_resource>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

// Builds a dict. A later value of a key replaces the earlier one but keeps its place.
class DictBuilder {
 public:
  explicit DictBuilder(Runtime& rt, std::size_t expected = 0);
  // Throws where Python would: for a key that is a list or a dict.
  void set(const Value& key, const Value& value);
  // Adds a key that is known to be new.
  void append(const Value& key, const Value& value);
  // Uses the dict as a set: adds `key` and returns whether it is new.
  bool add(const Value& key);
  // Sets all entries of `dict`.
  void update(const Dict& dict);
  // Returns the dict. The builder must not be used after that.
  Value finish();

 private:
  void rebuild_index();

  Runtime& rt_;
  std::pmr::vector<DictEntry> entries_;
  std::uint32_t* index_ = nullptr;
  std::uint32_t mask_ = 0;
};

// Returns the value of `key`, or null if there is none. Throws for a key that cannot be one.
const Value* find(Runtime& rt, const Dict& dict, const Value& key);
const Value* find(const Dict& dict, std::string_view key);

// Returns the items of keys(), values() or items() as an array.
std::span<const Value> view_items(Runtime& rt, const DictView& view);

}  // namespace bl::jinja
