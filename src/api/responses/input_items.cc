#include "api/responses/input_items.h"

#include <utility>

#include "api/append_line.h"
#include "api/request_error.h"
#include "api/request_fields.h"
#include "api/typed_members.h"

namespace bl::responses {
namespace {

using openai::append_line;
using openai::fail_at;
using openai::given;
using openai::needed_text;

std::string part_text(const OrderedJson& part, const std::string& path) {
  openai::expect_object(part, path);
  const std::string& type = needed_text(part, path + ".type");
  for (const char* kind : {"input_text", "output_text", "text", "summary_text", "reasoning_text"}) {
    if (type == kind) return needed_text(part, path + ".text");
  }
  if (type == "refusal") return needed_text(part, path + ".refusal");
  fail_at(ErrorCode::kUnsupported, path + ".type", "{} is a part of type {}; only text can be read",
          path, json_shown(type));
}

// The text of a content, which is a text or a list of parts.
std::string text_of(const OrderedJson& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    fail_at(ErrorCode::kInvalidArgument, path, "{} is {}, should be a text or a list of parts",
            path, json_shown(content));
  }
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    append_line(text, part_text(content[i], fmt::format("{}[{}]", path, i)));
  }
  return text;
}

}  // namespace

void InputItems::add_text(const char* role, const std::string& text) {
  end_turn();
  messages_.push_back({{"role", role}, {"content", text}});
}

void InputItems::add(const OrderedJson& item, const std::string& path) {
  openai::expect_object(item, path);
  const std::string* given_type = openai::given_text(item, path + ".type");
  const std::string type = given_type == nullptr ? "message" : *given_type;
  if (type == "message") return add_message(item, path);
  if (type == "reasoning") return add_reasoning(item, path);
  if (type == "function_call") return add_call(item, path, "arguments");
  if (type == "custom_tool_call") return add_call(item, path, "input");
  if (type == "function_call_output" || type == "custom_tool_call_output") {
    return add_output(item, path);
  }
  if (type == "item_reference") {
    fail_at(ErrorCode::kUnsupported, path,
            "{} refers to an item of an earlier answer, and answers are not stored here; send the "
            "item itself",
            path);
  }
}

void InputItems::add_message(const OrderedJson& item, const std::string& path) {
  const std::string& role = needed_text(item, path + ".role");
  const OrderedJson* content = given(item, "content");
  const std::string place = path + ".content";
  if (content == nullptr) {
    fail_at(ErrorCode::kInvalidArgument, place,
            "{} is missing; it should be a text or a list of parts", place);
  }
  std::string text = text_of(*content, place);
  if (role == "assistant") {
    if (turn().contains("tool_calls") || !turn()["content"].is_null()) end_turn();
    turn()["content"] = std::move(text);
    return;
  }
  if (role != "user" && role != "system" && role != "developer") {
    fail_at(ErrorCode::kInvalidArgument, path + ".role",
            "{}.role is {}, should be \"user\", \"assistant\", \"system\" or \"developer\"", path,
            json_shown(role));
  }
  add_text(role.c_str(), text);
}

// The whole reasoning, if the item has it, else its summary.
void InputItems::add_reasoning(const OrderedJson& item, const std::string& path) {
  std::string text;
  for (const char* key : {"content", "summary"}) {
    const OrderedJson* parts = openai::given_list(item, path + "." + key);
    if (text.empty() && parts != nullptr) text = text_of(*parts, path + "." + key);
  }
  if (text.empty()) return;
  if (!turn_.is_null() && (!turn_["content"].is_null() || turn_.contains("tool_calls"))) end_turn();
  turn()["reasoning_content"] = std::move(text);
}

void InputItems::add_call(const OrderedJson& item, const std::string& path, const char* arguments) {
  const std::string& text = needed_text(item, path + "." + arguments);
  // A custom tool takes any text. Templates want an object.
  const bool is_custom = std::string_view(arguments) == "input";
  OrderedJson call = {
      {"id", needed_text(item, path + ".call_id")},
      {"type", "function"},
      {"function",
       {{"name", needed_text(item, path + ".name")},
        {"arguments", is_custom ? json_text(OrderedJson{{"input", text}}) : text}}}};
  turn()["tool_calls"].push_back(std::move(call));
}

void InputItems::add_output(const OrderedJson& item, const std::string& path) {
  const std::string& id = needed_text(item, path + ".call_id");
  const OrderedJson* output = given(item, "output");
  end_turn();
  messages_.push_back({{"role", "tool"},
                       {"tool_call_id", id},
                       {"content", output == nullptr ? "" : text_of(*output, path + ".output")}});
}

OrderedJson& InputItems::turn() {
  if (turn_.is_null()) turn_ = {{"role", "assistant"}, {"content", nullptr}};
  return turn_;
}

void InputItems::end_turn() {
  if (turn_.is_null()) return;
  if (turn_["content"].is_null() && !turn_.contains("tool_calls")) turn_["content"] = "";
  messages_.push_back(std::exchange(turn_, nullptr));
}

OrderedJson InputItems::take() {
  end_turn();
  return std::move(messages_);
}

}  // namespace bl::responses
