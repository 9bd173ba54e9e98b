#include "base/json.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

namespace bl {
namespace {

constexpr int kMaxDepth = 200;

// Counts brackets outside strings only; whether the text is JSON is for the parser to say. (A
// parser callback could count too, but with one nlohmann scans all of a parent's children for each
// child.)
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

// Builds ordered documents. nlohmann's own parser searches the object before it adds a key, which
// would take minutes for a hostile line of 200,000 keys.
class OrderedReader : public nlohmann::json_sax<OrderedJson> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(OrderedJson::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(OrderedJson::object()); }
  bool end_object() override {
    join_repeated_keys(open_.back()->get_ref<Object&>());
    open_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return open(OrderedJson::array()); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool key(std::string& name) override {
    entries(open_.back()->get_ref<Object&>()).emplace_back(std::move(name), nullptr);
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    mistake_ = error.what();
    return false;
  }

  OrderedJson take() { return std::move(root_); }
  const std::string& mistake() const { return mistake_; }

 private:
  using Object = OrderedJson::object_t;

  // The vector that the ordered map derives from: adding to it does not search for the key.
  static Object::Container& entries(Object& object) { return object; }

  template <class Value>
  OrderedJson* place(Value&& value) {
    if (open_.empty()) {
      root_ = std::forward<Value>(value);
      return &root_;
    }
    OrderedJson& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::forward<Value>(value));
      return &parent.back();
    }
    OrderedJson& slot = entries(parent.get_ref<Object&>()).back().second;
    slot = std::forward<Value>(value);
    return &slot;
  }

  template <class Value>
  bool add(Value&& value) {
    place(OrderedJson(std::forward<Value>(value)));
    return true;
  }

  // Pointers in `open_` stay valid, because a parent grows only after its last child is closed.
  bool open(OrderedJson value) {
    open_.push_back(place(std::move(value)));
    return true;
  }

  // Keeps the last value of a repeated key, at the place of the first, as Python does.
  static void join_repeated_keys(Object& object) {
    std::unordered_map<std::string_view, std::size_t> last;
    last.reserve(object.size());
    for (std::size_t i = 0; i < object.size(); ++i) last[entries(object)[i].first] = i;
    if (last.size() == object.size()) return;
    Object joined;
    for (const auto& [name, value] : object) {
      const auto it = last.find(name);
      if (it->second == kUsed) continue;
      OrderedJson& kept = entries(object)[it->second].second;
      entries(joined).emplace_back(name, std::move(kept));
      it->second = kUsed;
    }
    object = std::move(joined);
  }

  static constexpr std::size_t kUsed = SIZE_MAX;

  OrderedJson root_;
  std::vector<OrderedJson*> open_;  // objects and arrays that are not closed yet, outermost first
  std::string mistake_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view what) {
  check_depth(text, what);
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON: {}", what, e.what());
  }
}

OrderedJson parse_ordered_json(std::string_view text, std::string_view what) {
  check_depth(text, what);
  OrderedReader reader;
  if (!OrderedJson::sax_parse(text.begin(), text.end(), &reader)) {
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON: {}", what, reader.mistake());
  }
  return reader.take();
}

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string json_text(const OrderedJson& value, int indent) {
  return value.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string json_shown(const Json& value) {
  constexpr std::size_t kMost = 60;
  std::string text = json_text(value);
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  while (is_continuation(text[end])) --end;
  return text.substr(0, end) + "…";
}

Json read_json_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path.string());
}

}  // namespace bl
