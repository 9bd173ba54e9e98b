#pragma once
#include <span>
#include <string_view>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

bool is_iterable(const Value& value);

// Walks a value as Python's for does. An iterator is used up as the walk goes.
class Cursor {
 public:
  // Throws where `iterable` cannot be walked.
  Cursor(Runtime& rt, const Value& iterable);
  // False at the end.
  bool next(Value& item);

 private:
  Runtime& rt_;
  Value source_;
  std::span<const Value> items_;
  std::size_t position_ = 0;  // item, or byte of a string
};

// list(iterable), without copying where it is an array already.
std::span<const Value> items_of(Runtime& rt, const Value& iterable);

}  // namespace bl::jinja
