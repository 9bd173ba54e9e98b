#pragma once
// Values as text: str(), repr(), HTML escapes, JSON.

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

// Append str(value) and repr(value) to `out`.
void append_str(Runtime& rt, const Value& value, std::string& out);
void append_repr(Runtime& rt, const Value& value, std::string& out);
// str_of is str(value) and never markup; soft_str leaves a string, and so markup, as it is.
Value str_of(Runtime& rt, const Value& value);
Value soft_str(Runtime& rt, const Value& value);
Value repr_of(Runtime& rt, const Value& value);

// markupsafe.escape: leaves markup as it is, and replaces & < > ' " in everything else.
Value escape_html(Runtime& rt, const Value& value);
void append_escaped(std::string_view text, std::string& out);

// How json.dumps() writes a value. append_json throws for values that JSON cannot express.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // the white space of one level; if empty, all is on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
void append_json(Runtime& rt, const Value& value, const JsonStyle& style, std::string& out);

}  // namespace bl::jinja
