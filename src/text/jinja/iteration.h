#pragma once
#include <span>
#include <string_view>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

bool is_iterable(const Value& value);

// Walks over a value as Python's for does. Walking over an iterator uses it up.
class Cursor {
 public:
  // Throws if `iterable` cannot be walked.
  Cursor(Runtime& rt, const Value& iterable);
  // Takes the next item; returns false at the end.
  bool next(Value& item);

 private:
  Runtime& rt_;
  Value source_;
  std::span<const Value> items_;
  std::size_t position_ = 0;  // index of an item, or of a byte of a string
};

// Returns list(iterable), without copying what is an array already. An iterator is used up.
std::span<const Value> items_of(Runtime& rt, const Value& iterable);

}  // namespace bl::jinja
