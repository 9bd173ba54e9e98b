#include "text/component_reader.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace bl {
namespace {

constexpr std::size_t kShown = 60;  // bytes of a wrong value that a message shows

}  // namespace

ComponentReader::ComponentReader(const Json& json, std::string where)
    : json_(json), where_(std::move(where)) {
  if (!json_.is_object()) {
    fail(ErrorCode::kInvalidFile, "{}: expected an object, found {}", where_, json_.type_name());
  }
}

std::string ComponentReader::where(const char* key) const {
  return fmt::format("{}.{}", where_, key);
}

bool ComponentReader::has(const char* key) const {
  const auto it = json_.find(key);
  return it != json_.end() && !it->is_null();
}

void ComponentReader::check_nesting(const char* key, int depth) const {
  constexpr int kMaxNesting = 16;
  if (depth >= kMaxNesting) wrong(key, fmt::format("at most {} levels of sequences", kMaxNesting));
}

void ComponentReader::wrong(const char* key, std::string_view expected) const {
  const auto it = json_.find(key);
  if (it == json_.end()) {
    fail(ErrorCode::kInvalidFile, "{} is missing; expected {}", where(key), expected);
  }
  std::string found = it->is_structured() ? it->type_name() : it->dump();
  if (found.size() > kShown) found = to_valid_utf8(found.substr(0, kShown)) + "…";
  fail(ErrorCode::kInvalidFile, "{}: expected {}, found {}", where(key), expected, found);
}

const Json& ComponentReader::at(const char* key) const {
  const auto it = json_.find(key);
  if (it == json_.end()) wrong(key, "a value");
  return *it;
}

std::string ComponentReader::string(const char* key) const {
  const auto it = json_.find(key);
  if (it == json_.end() || !it->is_string()) wrong(key, "a string");
  return it->get<std::string>();
}

std::string ComponentReader::string_or(const char* key, std::string otherwise) const {
  return has(key) ? string(key) : std::move(otherwise);
}

bool ComponentReader::boolean_or(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const Json& value = json_.at(key);
  if (!value.is_boolean()) wrong(key, "true or false");
  return value.get<bool>();
}

std::int64_t ComponentReader::integer(const char* key) const {
  const auto it = json_.find(key);
  const bool fits = it != json_.end() && it->is_number_integer() &&
                    (!it->is_number_unsigned() || it->get<std::uint64_t>() <= INT64_MAX);
  if (!fits) wrong(key, "a whole number");
  return it->get<std::int64_t>();
}

char32_t ComponentReader::character(const char* key) const {
  const std::string text = string(key);
  if (text.empty() || utf8_size(text[0]) != text.size()) wrong(key, "one character");
  return code_point_at(text, 0).value;
}

ComponentReader ComponentReader::child(const char* key) const {
  const auto it = json_.find(key);
  if (it == json_.end() || !it->is_object()) wrong(key, "an object");
  return {*it, where(key)};
}

std::vector<ComponentReader> ComponentReader::children(const char* key) const {
  const auto it = json_.find(key);
  if (it == json_.end() || !it->is_array()) wrong(key, "a list of objects");
  std::vector<ComponentReader> out;
  out.reserve(it->size());
  for (std::size_t i = 0; i < it->size(); ++i) {
    out.emplace_back((*it)[i], fmt::format("{}[{}]", where(key), i));
  }
  return out;
}

}  // namespace bl
