#include "api/anthropic/messages_request.h"

#include <string>
#include <utility>

#include "api/anthropic/turns.h"
#include "api/request_error.h"
#include "api/request_fields.h"
#include "api/shared_fields.h"
#include "api/typed_members.h"
#include "base/json.h"

namespace bl::anthropic {
namespace {

using openai::fail_at;
using openai::given;
using openai::given_list;
using openai::given_object;
using openai::given_text;
using openai::needed_text;

OrderedJson messages_of(const OrderedJson& body) {
  const OrderedJson* messages = given_list(body, "messages");
  if (messages == nullptr || messages->empty()) {
    fail_at(ErrorCode::kInvalidArgument, "messages",
            "messages should be a list of at least one message");
  }
  Turns turns;
  if (const OrderedJson* system = given(body, "system")) turns.add_system(*system);
  for (std::size_t i = 0; i < messages->size(); ++i) {
    turns.add((*messages)[i], fmt::format("messages[{}]", i));
  }
  return turns.take();
}

// Tools with a type other than "custom" are run by Anthropic's servers, or known to their models
// without a schema.
OrderedJson tools_of(const OrderedJson& body) {
  OrderedJson tools = OrderedJson::array();
  const OrderedJson* list = given_list(body, "tools");
  if (list == nullptr) return tools;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const OrderedJson& tool = (*list)[i];
    const std::string path = fmt::format("tools[{}]", i);
    openai::expect_object(tool, path);
    const std::string* type = given_text(tool, path + ".type");
    if (type != nullptr && *type != "custom") continue;
    OrderedJson function = {{"name", needed_text(tool, path + ".name")}};
    if (const std::string* description = given_text(tool, path + ".description")) {
      function["description"] = *description;
    }
    if (const OrderedJson* schema = given_object(tool, path + ".input_schema")) {
      function["parameters"] = *schema;
    }
    if (const OrderedJson* strict = given(tool, "strict")) function["strict"] = *strict;
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

void read_tool_choice(const OrderedJson& body, OrderedJson& chat) {
  const OrderedJson* choice = given_object(body, "tool_choice");
  if (choice == nullptr) return;
  const std::string& type = needed_text(*choice, "tool_choice.type");
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"},
                           {"function", {{"name", needed_text(*choice, "tool_choice.name")}}}};
  } else {
    fail_at(ErrorCode::kInvalidArgument, "tool_choice.type",
            "tool_choice.type is {}, should be \"auto\", \"any\", \"tool\" or \"none\"",
            json_shown(type));
  }
  if (openai::read_flag(*choice, "tool_choice.disable_parallel_tool_use", false)) {
    chat["parallel_tool_calls"] = false;
  }
}

// Clients send these to models that do not reason, too, so they are wishes.
void read_thinking(const OrderedJson& body, OrderedJson& chat) {
  OrderedJson reasoning = OrderedJson::object();
  if (const OrderedJson* thinking = given_object(body, "thinking")) {
    const std::string& type = needed_text(*thinking, "thinking.type");
    reasoning["enabled"] = type != "disabled";
    if (const auto budget = openai::given_whole(*thinking, "thinking.budget_tokens")) {
      if (type != "disabled") chat["reasoning_budget_tokens"] = *budget;
    }
  }
  const OrderedJson* config = given_object(body, "output_config");
  if (config != nullptr) {
    if (const std::string* effort = given_text(*config, "output_config.effort")) {
      const bool is_above = *effort == "xhigh" || *effort == "max";  // templates know none above
      reasoning["effort"] = is_above ? "high" : *effort;
    }
  }
  if (!reasoning.empty()) chat["reasoning"] = std::move(reasoning);
}

// "output_config": {"format": {"type": "json_schema", "schema": …}}; "output_format" is its older
// name.
void read_format(const OrderedJson& body, OrderedJson& chat) {
  const OrderedJson* config = given_object(body, "output_config");
  std::string path = "output_config.format";
  const OrderedJson* format = config == nullptr ? nullptr : given_object(*config, path);
  if (format == nullptr) {
    path = "output_format";
    format = given_object(body, path);
  }
  if (format == nullptr) return;
  const OrderedJson* schema = given_object(*format, path + ".schema");
  if (needed_text(*format, path + ".type") != "json_schema" || schema == nullptr) {
    fail_at(ErrorCode::kInvalidArgument, path,
            "{} is {}, should have the type \"json_schema\" and a schema", path,
            json_shown(*format));
  }
  chat["response_format"] = {{"type", "json_schema"},
                             {"json_schema", {{"name", "answer"}, {"schema", *schema}}}};
}

// Whether the answer is to go on with the text of the last message.
bool is_begun(const OrderedJson& messages) {
  const OrderedJson& last = messages.back();
  return last["role"] == "assistant" && !last.contains("tool_calls") && last["content"] != "";
}

}  // namespace

OrderedJson chat_body(const OrderedJson& body) {
  OrderedJson chat = OrderedJson::object();
  openai::copy_shared_fields(body, chat);
  if (const std::string* model = given_text(body, "model")) chat["model"] = *model;
  chat["stream"] = openai::read_flag(body, "stream", false);
  given_list(body, "stop_sequences");  // the same field as "stop", but never a single text
  chat["messages"] = messages_of(body);
  if (is_begun(chat["messages"])) chat["continue_final_message"] = true;
  OrderedJson tools = tools_of(body);
  if (!tools.empty()) {
    chat["tools"] = std::move(tools);
    read_tool_choice(body, chat);
  }
  read_thinking(body, chat);
  read_format(body, chat);
  return chat;
}

}  // namespace bl::anthropic
