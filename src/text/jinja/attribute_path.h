#pragma once
// What `attribute=` of filters means: "author.name", "items.0", 1.

#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

class AttributePath {
 public:
  // None or a value that is missing: the item itself.
  AttributePath(Runtime& rt, const Value& attribute);

  // Undefined parts of the way become `otherwise`, unless that is missing or None.
  Value get(const Value& item, const Value& otherwise = {}) const;

 private:
  Runtime& rt_;
  std::vector<Value> parts_;
};

// Strings in lower case, everything else as it is.
Value ignore_case(Runtime& rt, const Value& value);

}  // namespace bl::jinja
