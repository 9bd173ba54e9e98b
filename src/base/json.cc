#include "base/json.h"

#include "base/error.h"
#include "base/file.h"

namespace bl {
namespace {

constexpr int kMaxDepth = 200;

// Looks at brackets outside strings only; whether the text is JSON is the parser's to say. (A
// parser callback could count too, but makes nlohmann scan a parent's children once a child.)
void check_depth(std::string_view text, std::string_view what) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) {
        fail(ErrorCode::kInvalidFile, "{}: JSON is nested deeper than {} levels", what, kMaxDepth);
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

template <class Value>
Value parse(std::string_view text, std::string_view what) {
  check_depth(text, what);
  try {
    return Value::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON: {}", what, e.what());
  }
}

}  // namespace

Json parse_json(std::string_view text, std::string_view what) { return parse<Json>(text, what); }

OrderedJson parse_ordered_json(std::string_view text, std::string_view what) {
  return parse<OrderedJson>(text, what);
}

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string json_text(const OrderedJson& value, int indent) {
  return value.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

Json read_json_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path.string());
}

}  // namespace bl
