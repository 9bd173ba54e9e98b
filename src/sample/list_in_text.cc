#include "sample/list_in_text.h"

#include <string>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

std::optional<Json> parsed(std::string_view text) {
  try {
    return parse_json(text, "a list in a text");
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<Json> list_in_text(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return std::nullopt;
  const char begin = text[first];
  if (begin == '[' || begin == '{') {
    std::optional<Json> whole = parsed(text);
    if (whole) return whole;
  }
  // Most texts are no lists at all; do not copy and parse those.
  constexpr std::string_view kBeginsOfItems = "\"[-0123456789";
  if (kBeginsOfItems.find(begin) == kBeginsOfItems.npos) return std::nullopt;
  return parsed("[" + std::string(text) + "]");
}

}  // namespace bl
