#pragma once
// The `attribute=` argument of filters: "author.name", "items.0", or a number.

#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

class AttributePath {
 public:
  // Without a value, or with None, the path leads to the item itself.
  AttributePath(Runtime& rt, const Value& attribute);

  // Follows the path from `item`. Where a part of it is undefined, `otherwise` is taken instead,
  // unless that is missing or None.
  Value get(const Value& item, const Value& otherwise = {}) const;

 private:
  Runtime& rt_;
  std::vector<Value> parts_;
};

// Returns a string in lower case, and any other value unchanged.
Value ignore_case(Runtime& rt, const Value& value);

}  // namespace bl::jinja
