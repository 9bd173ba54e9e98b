#pragma once
#include <memory_resource>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

// Makes a dict: later values of a key replace earlier ones, the first place is kept.
class DictBuilder {
 public:
  explicit DictBuilder(Runtime& rt, std::size_t expected = 0);
  // Throws where Python would: a key that is a list or dict.
  void set(const Value& key, const Value& value);
  // For a key that is known to be new.
  void append(const Value& key, const Value& value);
  // As a set: whether `key` is new.
  bool add(const Value& key);
  // All entries of `dict`.
  void update(const Dict& dict);
  Value finish();

 private:
  void rebuild_index();

  Runtime& rt_;
  std::pmr::vector<DictEntry> entries_;
  std::uint32_t* index_ = nullptr;
  std::uint32_t mask_ = 0;
};

// The value of `key`, null if there is none; throws for a key that cannot be one.
const Value* find(Runtime& rt, const Dict& dict, const Value& key);
const Value* find(const Dict& dict, std::string_view key);

// keys(), values() or items() as an array.
std::span<const Value> view_items(Runtime& rt, const DictView& view);

}  // namespace bl::jinja
