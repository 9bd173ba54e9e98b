#include "api/chat_messages.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "api/request_error.h"
#include "base/json.h"

namespace bl::openai {
namespace {

constexpr std::array kRoles{"system", "developer", "user", "assistant", "tool", "function"};

// Bounds of lists, far above what clients send.
constexpr std::size_t kMostMessages = 16384;
constexpr std::size_t kMostParts = 4096;  // of one message
constexpr std::size_t kMostTools = 1024;  // also of calls in one message

void check_size(const OrderedJson& list, std::size_t most, const std::string& what) {
  if (list.size() <= most) return;
  fail_at(ErrorCode::kInvalidArgument, what, "{} has {} entries; at most {} are allowed", what,
          list.size(), most);
}

bool is_text_of(const OrderedJson& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string();
}

std::string joined_parts(const OrderedJson& parts, const std::string& what) {
  check_size(parts, kMostParts, what);
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const OrderedJson& part = parts[i];
    const std::string param = fmt::format("{}[{}]", what, i);
    if (!is_text_of(part, "type")) {
      fail_at(ErrorCode::kInvalidArgument, param, "{}: {} is not a part with a type", what,
              json_text(part));
    }
    if (part["type"] != "text") {
      fail_at(ErrorCode::kInvalidArgument, param + ".type",
              "{} has a part of type {}; only text can be read", what, json_text(part["type"]));
    }
    if (!is_text_of(part, "text")) {
      fail_at(ErrorCode::kInvalidArgument, param + ".text",
              "{}: a part of type text should hold its text as \"text\"", what);
    }
    if (!text.empty()) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

// Checks that `list` is a list of objects, each of which describes or calls a function.
void check_functions(const OrderedJson& list, const std::string& what) {
  if (!list.is_array()) {
    fail_at(ErrorCode::kInvalidArgument, what, "{} is {}, but should be a list of objects", what,
            json_text(list));
  }
  check_size(list, kMostTools, what);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const OrderedJson& one = list[i];
    if (!one.is_object() || (one.contains("function") && !is_text_of(one["function"], "name"))) {
      fail_at(ErrorCode::kInvalidArgument, fmt::format("{}[{}]", what, i),
              "{}[{}]: {} should be an object whose \"function\" is an object with a name", what, i,
              json_text(one));
    }
  }
}

// Templates ask in several ways whether a message has calls, so a message has the member only if it
// has some. Beside calls, a missing content is the same as null.
void settle_tool_calls(OrderedJson& message, const std::string& what) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end()) return;
  if (!calls->is_null()) check_functions(*calls, what);
  if (calls->empty()) {
    message.erase("tool_calls");
  } else if (!message.contains("content")) {
    message["content"] = nullptr;
  }
}

}  // namespace

OrderedJson template_tools(const OrderedJson& tools) {
  if (tools.is_null()) return tools;
  check_functions(tools, "tools");
  return tools;
}

OrderedJson template_messages(const OrderedJson& messages) {
  if (!messages.is_array() || messages.empty()) {
    fail_at(ErrorCode::kInvalidArgument, "messages",
            "messages should be a list of at least one message");
  }
  check_size(messages, kMostMessages, "messages");
  OrderedJson result = messages;
  for (std::size_t i = 0; i < result.size(); ++i) {
    OrderedJson& message = result[i];
    if (!is_text_of(message, "role")) {
      fail_at(ErrorCode::kInvalidArgument, fmt::format("messages[{}].role", i),
              "messages[{}]: {} is not a message with a role", i, json_text(message));
    }
    if (std::find(kRoles.begin(), kRoles.end(), message["role"]) == kRoles.end()) {
      fail_at(ErrorCode::kInvalidArgument, fmt::format("messages[{}].role", i),
              "messages[{}].role is {}, should be system, developer, user, assistant, tool or "
              "function",
              i, json_shown(message["role"]));
    }
    settle_tool_calls(message, fmt::format("messages[{}].tool_calls", i));
    const auto content = message.find("content");
    if (content == message.end() || content->is_string() || content->is_null()) continue;
    const std::string what = fmt::format("messages[{}].content", i);
    if (!content->is_array()) {
      fail_at(ErrorCode::kInvalidArgument, what,
              "{} is {}, but should be a text or a list of parts", what, json_text(*content));
    }
    *content = joined_parts(*content, what);
  }
  return result;
}

}  // namespace bl::openai
