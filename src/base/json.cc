#include "base/json.h"

#include "base/error.h"
#include "base/file.h"

namespace bl {
namespace {

constexpr int kMaxDepth = 200;

template <class Value>
Value parse(std::string_view text, std::string_view what) {
  auto within_depth = [&](int depth, typename Value::parse_event_t, Value&) {
    if (depth > kMaxDepth) {
      fail(ErrorCode::kInvalidFile, "{}: JSON is nested deeper than {} levels", what, kMaxDepth);
    }
    return true;
  };
  try {
    return Value::parse(text.begin(), text.end(), within_depth);
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON: {}", what, e.what());
  }
}

}  // namespace

Json parse_json(std::string_view text, std::string_view what) { return parse<Json>(text, what); }

OrderedJson parse_ordered_json(std::string_view text, std::string_view what) {
  return parse<OrderedJson>(text, what);
}

Json read_json_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path.string());
}

}  // namespace bl
