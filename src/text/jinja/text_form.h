#pragma once
// Values as text: str(), repr(), HTML escapes, JSON.

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace bl::jinja {

void append_str(Runtime& rt, const Value& value, std::string& out);
void append_repr(Runtime& rt, const Value& value, std::string& out);
// str(value): never markup. soft_str: a string stays what it is.
Value str_of(Runtime& rt, const Value& value);
Value soft_str(Runtime& rt, const Value& value);
Value repr_of(Runtime& rt, const Value& value);

// markupsafe.escape: markup as it is, everything else with & < > ' " replaced.
Value escape_html(Runtime& rt, const Value& value);
void append_escaped(std::string_view text, std::string& out);

// json.dumps(). Throws for what JSON cannot say.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level's white space; empty optional: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
void append_json(Runtime& rt, const Value& value, const JsonStyle& style, std::string& out);

}  // namespace bl::jinja
