#include "api/typed_members.h"

#include "api/request_error.h"
#include "api/request_fields.h"
#include "base/json.h"

namespace bl::openai {
namespace {

const OrderedJson* member(const OrderedJson& object, const std::string& path) {
  return given(object, path.substr(path.rfind('.') + 1).c_str());
}

[[noreturn]] void fail_type(const OrderedJson& value, const std::string& path, const char* wanted) {
  fail_at(ErrorCode::kInvalidArgument, path, "{} is {}, should be {}", path, json_shown(value),
          wanted);
}

}  // namespace

const std::string* given_text(const OrderedJson& object, const std::string& path) {
  const OrderedJson* value = member(object, path);
  if (value == nullptr) return nullptr;
  if (!value->is_string()) fail_type(*value, path, "a text");
  return &value->get_ref<const std::string&>();
}

const OrderedJson* given_list(const OrderedJson& object, const std::string& path) {
  const OrderedJson* value = member(object, path);
  if (value != nullptr && !value->is_array()) fail_type(*value, path, "a list");
  return value;
}

const OrderedJson* given_object(const OrderedJson& object, const std::string& path) {
  const OrderedJson* value = member(object, path);
  if (value != nullptr) expect_object(*value, path);
  return value;
}

std::optional<std::int64_t> given_whole(const OrderedJson& object, const std::string& path) {
  const OrderedJson* value = member(object, path);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) fail_type(*value, path, "a whole number");
  return value->get<std::int64_t>();
}

const std::string& needed_text(const OrderedJson& object, const std::string& path) {
  const std::string* text = given_text(object, path);
  if (text == nullptr) {
    fail_at(ErrorCode::kInvalidArgument, path, "{} is missing; it should be a text", path);
  }
  return *text;
}

void expect_object(const OrderedJson& value, const std::string& path) {
  if (!value.is_object()) fail_type(value, path, "an object");
}

}  // namespace bl::openai
