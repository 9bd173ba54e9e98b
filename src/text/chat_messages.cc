#include "text/chat_messages.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace bl {
namespace {

bool is_text_of(const OrderedJson& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string();
}

std::string joined_parts(const OrderedJson& parts, const std::string& what) {
  std::string text;
  for (const OrderedJson& part : parts) {
    if (!is_text_of(part, "type")) {
      fail(ErrorCode::kInvalidArgument, "{}: {} is no part with a type", what, json_text(part));
    }
    if (part["type"] != "text") {
      fail(ErrorCode::kInvalidArgument, "{} has a part of type {}; only text can be read", what,
           json_text(part["type"]));
    }
    if (!is_text_of(part, "text")) {
      fail(ErrorCode::kInvalidArgument, "{}: a part of type text should hold it as \"text\"", what);
    }
    if (!text.empty()) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

}  // namespace

OrderedJson template_messages(const OrderedJson& messages) {
  if (!messages.is_array() || messages.empty()) {
    fail(ErrorCode::kInvalidArgument, "messages should be a list of at least one message");
  }
  OrderedJson result = messages;
  for (std::size_t i = 0; i < result.size(); ++i) {
    OrderedJson& message = result[i];
    if (!is_text_of(message, "role")) {
      fail(ErrorCode::kInvalidArgument, "messages[{}]: {} is no message with a role", i,
           json_text(message));
    }
    const auto content = message.find("content");
    if (content == message.end() || content->is_string() || content->is_null()) continue;
    const std::string what = fmt::format("messages[{}].content", i);
    if (!content->is_array()) {
      fail(ErrorCode::kInvalidArgument, "{} is {}, should be a text or a list of parts", what,
           json_text(*content));
    }
    *content = joined_parts(*content, what);
  }
  return result;
}

}  // namespace bl
