#include "toolcall/bare_value.h"

#include <optional>

#include "toolcall/json_scanner.h"
#include "toolcall/json_string.h"
#include "toolcall/literal_reader.h"

namespace bl {
namespace {

std::string_view trimmed_value(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool is_integer_text(std::string_view number) {
  if (number.find_first_of("eE") != number.npos) return false;
  const std::size_t point = number.find('.');
  return point == number.npos || number.find_first_not_of('0', point + 1) == number.npos;
}

// The type of a text that is JSON.
bool fits(std::string_view json, TypeSet types) {
  switch (json.front()) {
    case '{':
      return types.has(TypeSet::kObject);
    case '[':
      return types.has(TypeSet::kArray);
    case '"':
      return false;  // a quoted text is a string with quotes in it, unless it is no bare value at
                     // all
    case 't':
    case 'f':
      return types.has(TypeSet::kBoolean);
    case 'n':
      return types.has(TypeSet::kNull);
    default:
      return types.has(TypeSet::kNumber) || (types.has(TypeSet::kInteger) && is_integer_text(json));
  }
}

// The JSON of a text that is one Python literal.
std::optional<std::string> python_json(std::string_view text) {
  LiteralReader reader(LiteralReader::Dialect::kPython);
  std::string json;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const LiteralReader::Status status = reader.push(text[i], json);
    if (status == LiteralReader::Status::kDone) {
      if (i + 1 == text.size()) return json;
      return std::nullopt;
    }
    if (status != LiteralReader::Status::kMore) return std::nullopt;
  }
  if (reader.finish(json)) return json;
  return std::nullopt;
}

}  // namespace

bool is_whole_json(std::string_view text) {
  WholeJson json;
  json.push(text);
  return json.is_whole();
}

std::string bare_value_json(std::string_view text, TypeSet types) {
  std::string out;
  const std::string_view value = trimmed_value(text);
  if (!types.only_string() && !value.empty()) {
    if (is_whole_json(value)) {
      if (fits(value, types)) return std::string(value);
    } else if (const std::optional<std::string> json = python_json(value)) {
      if (fits(*json, types)) return *json;
    }
  }
  append_json_quoted(text, out);
  return out;
}

std::string json_or_string(std::string_view text) {
  if (is_whole_json(text)) return std::string(trimmed_value(text));
  std::string out;
  append_json_quoted(text, out);
  return out;
}

}  // namespace bl
