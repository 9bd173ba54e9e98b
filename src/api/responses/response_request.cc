#include "api/responses/response_request.h"

#include <string>
#include <string_view>
#include <utility>

#include "api/request_error.h"
#include "api/request_fields.h"
#include "api/responses/input_items.h"
#include "api/shared_fields.h"
#include "api/typed_members.h"
#include "base/json.h"

namespace bl::responses {
namespace {

using openai::fail_at;
using openai::given;
using openai::given_object;
using openai::given_text;
using openai::needed_text;

void refuse_memory(const OrderedJson& body) {
  for (const char* key : {"previous_response_id", "conversation", "prompt"}) {
    if (given(body, key) == nullptr) continue;
    fail_at(ErrorCode::kUnsupported, key,
            "{} refers to something that is stored, and nothing is stored here; send the whole "
            "conversation as \"input\" with every request",
            key);
  }
  if (openai::read_flag(body, "background", false)) {
    fail_at(ErrorCode::kUnsupported, "background",
            "background answers would have to be stored, and nothing is stored here; leave "
            "background out");
  }
}

OrderedJson messages_of(const OrderedJson& body) {
  InputItems items;
  if (const std::string* instructions = given_text(body, "instructions")) {
    items.add_text("system", *instructions);
  }
  const OrderedJson* input = given(body, "input");
  if (input == nullptr || !(input->is_string() || input->is_array())) {
    fail_at(ErrorCode::kInvalidArgument, "input", "input should be a text or a list of items");
  }
  if (input->is_string()) {
    items.add_text("user", input->get<std::string>());
  } else if (input->empty()) {
    items.add_text("user", "");  // clients try out a server this way
  } else {
    for (std::size_t i = 0; i < input->size(); ++i) {
      items.add((*input)[i], fmt::format("input[{}]", i));
    }
  }
  return items.take();
}

bool is_function(const OrderedJson& tool) {
  return tool.is_object() && tool.value("type", OrderedJson()) == "function";
}

OrderedJson tools_of(const OrderedJson& body) {
  OrderedJson tools = OrderedJson::array();
  const OrderedJson* list = openai::given_list(body, "tools");
  if (list == nullptr) return tools;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const OrderedJson& tool = (*list)[i];
    const std::string path = fmt::format("tools[{}]", i);
    openai::expect_object(tool, path);
    if (needed_text(tool, path + ".type") != "function") continue;
    OrderedJson function = {{"name", needed_text(tool, path + ".name")}};
    if (const std::string* description = given_text(tool, path + ".description")) {
      function["description"] = *description;
    }
    if (const OrderedJson* schema = given_object(tool, path + ".parameters")) {
      function["parameters"] = *schema;
    }
    if (const OrderedJson* strict = given(tool, "strict")) function["strict"] = *strict;
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

// "allowed_tools": the model may call only some of the tools that it is told of.
void keep_allowed(const OrderedJson& choice, OrderedJson& tools) {
  const OrderedJson* allowed = openai::given_list(choice, "tool_choice.tools");
  if (allowed == nullptr) return;
  OrderedJson kept = OrderedJson::array();
  for (const OrderedJson& tool : tools) {
    for (const OrderedJson& one : *allowed) {
      if (is_function(one) && one.value("name", OrderedJson()) == tool["function"]["name"]) {
        kept.push_back(tool);
        break;
      }
    }
  }
  tools = std::move(kept);
}

// Returns the choice in the form of chats.
OrderedJson tool_choice_of(const OrderedJson& body, OrderedJson& tools) {
  const OrderedJson* choice = given(body, "tool_choice");
  if (choice == nullptr) return "auto";
  if (*choice == "auto" || *choice == "none" || *choice == "required") return *choice;
  if (!choice->is_object()) {
    fail_at(ErrorCode::kInvalidArgument, "tool_choice",
            "tool_choice is {}, should be \"auto\", \"none\", \"required\" or an object",
            json_shown(*choice));
  }
  const std::string& type = needed_text(*choice, "tool_choice.type");
  if (type == "allowed_tools") {
    keep_allowed(*choice, tools);
    const std::string* mode = given_text(*choice, "tool_choice.mode");
    return mode == nullptr ? "auto" : *mode;
  }
  if (type != "function") return "auto";  // a tool that was left out
  return {{"type", "function"}, {"function", {{"name", needed_text(*choice, "tool_choice.name")}}}};
}

void read_tools(const OrderedJson& body, OrderedJson& chat) {
  OrderedJson tools = tools_of(body);
  if (tools.empty()) return;
  OrderedJson choice = tool_choice_of(body, tools);
  if (tools.empty()) return;
  chat["tools"] = std::move(tools);
  chat["tool_choice"] = std::move(choice);
  chat["parallel_tool_calls"] = openai::read_flag(body, "parallel_tool_calls", true);
}

void read_text_options(const OrderedJson& body, OrderedJson& chat) {
  const OrderedJson* text = given_object(body, "text");
  if (text == nullptr) return;
  if (const std::string* verbosity = given_text(*text, "text.verbosity")) {
    chat["verbosity"] = *verbosity;
  }
  const OrderedJson* format = given_object(*text, "text.format");
  if (format == nullptr) return;
  const std::string& type = needed_text(*format, "text.format.type");
  if (type == "text") return;
  if (type == "json_object") {
    chat["response_format"] = {{"type", type}};
    return;
  }
  if (type != "json_schema") {
    fail_at(ErrorCode::kInvalidArgument, "text.format.type",
            "text.format.type is {}, should be \"text\", \"json_object\" or \"json_schema\"",
            json_shown(type));
  }
  OrderedJson schema = OrderedJson::object();
  for (const char* key : {"name", "schema", "strict"}) {
    if (const OrderedJson* value = given(*format, key)) schema[key] = *value;
  }
  if (given_object(*format, "text.format.schema") == nullptr) {
    fail_at(ErrorCode::kInvalidArgument, "text.format.schema",
            "text.format.schema is missing; it should be a JSON schema");
  }
  chat["response_format"] = {{"type", type}, {"json_schema", std::move(schema)}};
}

void read_reasoning(const OrderedJson& body, OrderedJson& chat) {
  const OrderedJson* reasoning = given_object(body, "reasoning");
  if (reasoning == nullptr) return;
  if (const std::string* effort = given_text(*reasoning, "reasoning.effort")) {
    chat["reasoning_effort"] = *effort;
  }
}

bool forces_a_call(const OrderedJson& chat) {
  const OrderedJson* choice = given(chat, "tool_choice");
  return choice != nullptr && *choice != "auto" && *choice != "none";
}

}  // namespace

OrderedJson chat_body(const OrderedJson& body) {
  refuse_memory(body);
  OrderedJson chat = OrderedJson::object();
  openai::copy_shared_fields(body, chat);
  if (const std::string* model = given_text(body, "model")) chat["model"] = *model;
  chat["stream"] = openai::read_flag(body, "stream", false);
  chat["messages"] = messages_of(body);
  if (const auto most = openai::given_whole(body, "max_output_tokens")) {
    chat["max_tokens"] = *most;
  }
  read_tools(body, chat);
  read_text_options(body, chat);
  // The form is one of the answer's text, and a call that is forced leaves no text.
  if (forces_a_call(chat)) chat.erase("response_format");
  read_reasoning(body, chat);
  return chat;
}

Json echoed_fields(const OrderedJson& body) {
  const auto or_else = [&](const char* key, Json otherwise) {
    const OrderedJson* value = given(body, key);
    return value == nullptr ? std::move(otherwise) : Json(*value);
  };
  Json tools = Json::array();
  if (const OrderedJson* all = given(body, "tools")) {
    for (const OrderedJson& tool : *all) {
      if (is_function(tool)) tools.push_back(Json(tool));
    }
  }
  Json text = or_else("text", Json::object());
  if (!text.contains("format")) text["format"] = {{"type", "text"}};
  Json reasoning = {{"effort", nullptr}, {"summary", nullptr}};
  reasoning.update(or_else("reasoning", Json::object()));
  return {{"background", false},
          {"instructions", or_else("instructions", nullptr)},
          {"max_output_tokens", or_else("max_output_tokens", nullptr)},
          {"metadata", or_else("metadata", Json::object())},
          {"parallel_tool_calls", or_else("parallel_tool_calls", true)},
          {"previous_response_id", nullptr},
          {"reasoning", std::move(reasoning)},
          {"service_tier", "default"},
          {"store", false},
          {"temperature", or_else("temperature", 1.0)},
          {"text", std::move(text)},
          {"tool_choice", or_else("tool_choice", "auto")},
          {"tools", std::move(tools)},
          {"top_p", or_else("top_p", 1.0)},
          {"truncation", "disabled"},
          {"user", or_else("user", nullptr)}};
}

}  // namespace bl::responses
