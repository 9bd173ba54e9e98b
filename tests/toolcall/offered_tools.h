#pragma once
#include "base/json.h"

namespace bl::test {

// The tools that the answers of these tests call.
inline Json offered_tools() {
  return parse_json(R"([
    {"type": "function", "function": {"name": "paint_fence", "parameters": {"type": "object",
      "properties": {"colour": {"type": "string"}, "coats": {"type": "integer"},
        "litres": {"type": "number"}, "gate": {"type": "boolean"},
        "boards": {"type": "array", "items": {"type": "string"}},
        "size": {"type": "object", "properties": {"wide": {"type": "integer"},
          "note": {"type": "string"}, "parts": {"type": "array", "items": {"type": "number"}}}},
        "limit": {"type": ["integer", "null"]}}, "required": ["colour"]}}},
    {"name": "count-boards", "parameters": {"type": "object", "properties": {}}}])",
                    "tools");
}

}  // namespace bl::test
