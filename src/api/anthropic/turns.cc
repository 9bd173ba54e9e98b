#include "api/anthropic/turns.h"

#include <string_view>
#include <utility>

#include "api/append_line.h"
#include "api/request_error.h"
#include "api/request_fields.h"
#include "api/typed_members.h"

namespace bl::anthropic {
namespace {

using openai::append_line;
using openai::fail_at;
using openai::given;
using openai::needed_text;

// One client begins its system prompt with a line that changes with each of its versions and
// conversations. With it, no two prompts would have a common beginning.
constexpr std::string_view kBilling = "x-anthropic-billing-header:";

std::string without_billing(const std::string& text) {
  if (!text.starts_with(kBilling)) return text;
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? std::string() : text.substr(end + 1);
}

[[noreturn]] void fail_block(const std::string& type, const std::string& path) {
  const bool is_media = type == "image" || type == "document";
  fail_at(is_media ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument, path + ".type",
          "{} is a block of type {}; {}", path, json_shown(type),
          is_media ? "only text can be read" : "that type is not known here");
}

// The text of a block that has nothing else.
std::string text_of(const OrderedJson& block, const std::string& path) {
  const std::string& type = needed_text(block, path + ".type");
  if (type == "text") return needed_text(block, path + ".text");
  const OrderedJson* source = type == "document" ? given(block, "source") : nullptr;
  if (source != nullptr && source->is_object() && source->value("type", OrderedJson()) == "text") {
    return needed_text(*source, path + ".source.data");
  }
  fail_block(type, path);
}

// Calls visit(block, path) for each block of a content. A text is one block of text.
template <class Visit>
void each_block(const OrderedJson& content, const std::string& path, Visit&& visit) {
  if (content.is_string()) return visit(OrderedJson{{"type", "text"}, {"text", content}}, path);
  if (!content.is_array()) {
    fail_at(ErrorCode::kInvalidArgument, path, "{} is {}, should be a text or a list of blocks",
            path, json_shown(content));
  }
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", path, i);
    openai::expect_object(content[i], place);
    visit(content[i], place);
  }
}

std::string joined_text(const OrderedJson& content, const std::string& path) {
  std::string text;
  each_block(content, path, [&](const OrderedJson& block, const std::string& place) {
    append_line(text, text_of(block, place));
  });
  return text;
}

// The text of a tool's result. References to tools that a search has found are their names.
std::string result_text(const OrderedJson& content, const std::string& path) {
  std::string text;
  each_block(content, path, [&](const OrderedJson& block, const std::string& place) {
    const bool is_reference = block.value("type", OrderedJson()) == "tool_reference";
    append_line(text,
                is_reference ? needed_text(block, place + ".tool_name") : text_of(block, place));
  });
  return text;
}

OrderedJson call_of(const OrderedJson& block, const std::string& path) {
  const OrderedJson* input = openai::given_object(block, path + ".input");
  return {{"id", needed_text(block, path + ".id")},
          {"type", "function"},
          {"function",
           {{"name", needed_text(block, path + ".name")},
            {"arguments", json_text(input == nullptr ? OrderedJson::object() : *input)}}}};
}

}  // namespace

void Turns::add_system(const OrderedJson& content) {
  std::string text;
  each_block(content, "system", [&](const OrderedJson& block, const std::string& place) {
    append_line(text, without_billing(text_of(block, place)));
  });
  if (!text.empty()) add_text("system", std::move(text));
}

void Turns::add(const OrderedJson& message, const std::string& path) {
  openai::expect_object(message, path);
  const std::string& role = needed_text(message, path + ".role");
  const OrderedJson* content = given(message, "content");
  const std::string place = path + ".content";
  if (content == nullptr) {
    fail_at(ErrorCode::kInvalidArgument, place,
            "{} is missing; it should be a text or a list of blocks", place);
  }
  if (role == "user") return add_user(*content, place);
  if (role == "assistant") return add_assistant(*content, place);
  if (role == "system") return add_text("system", joined_text(*content, place));
  fail_at(ErrorCode::kInvalidArgument, path + ".role",
          "{}.role is {}, should be \"user\", \"assistant\" or \"system\"", path, json_shown(role));
}

// A user's turn also carries the results of the calls before it, each of which is a message of its
// own in OpenAI's form.
void Turns::add_user(const OrderedJson& blocks, const std::string& path) {
  std::string text;
  bool has_text = false;
  each_block(blocks, path, [&](const OrderedJson& block, const std::string& place) {
    if (needed_text(block, place + ".type") == "tool_result") {
      if (std::exchange(has_text, false)) add_text("user", std::exchange(text, {}));
      return add_result(block, place);
    }
    has_text = true;
    append_line(text, text_of(block, place));
  });
  if (has_text || blocks.empty()) add_text("user", std::move(text));
}

void Turns::add_result(const OrderedJson& block, const std::string& path) {
  const std::string& id = needed_text(block, path + ".tool_use_id");
  const OrderedJson* content = given(block, "content");
  std::string text = content == nullptr ? "" : result_text(*content, path + ".content");
  if (openai::read_flag(block, path + ".is_error", false)) text = "Error: " + text;
  OrderedJson message = {{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(text)}};
  if (const auto tool = tool_of_call_.find(id); tool != tool_of_call_.end()) {
    message["name"] = tool->second;
  }
  messages_.push_back(std::move(message));
}

void Turns::add_assistant(const OrderedJson& blocks, const std::string& path) {
  std::string text, reasoning;
  OrderedJson calls = OrderedJson::array();
  each_block(blocks, path, [&](const OrderedJson& block, const std::string& place) {
    const std::string& type = needed_text(block, place + ".type");
    if (type == "thinking") {
      append_line(reasoning, needed_text(block, place + ".thinking"));
    } else if (type == "tool_use") {
      calls.push_back(call_of(block, place));
      const OrderedJson& call = calls.back();
      tool_of_call_[call["id"].get<std::string>()] = call["function"]["name"].get<std::string>();
    } else if (type != "redacted_thinking") {  // nobody but its author can read that
      append_line(text, text_of(block, place));
    }
  });
  OrderedJson message = {{"role", "assistant"}, {"content", text}};
  if (text.empty() && !calls.empty()) message["content"] = nullptr;
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  messages_.push_back(std::move(message));
}

void Turns::add_text(const char* role, std::string text) {
  messages_.push_back({{"role", role}, {"content", std::move(text)}});
}

}  // namespace bl::anthropic
