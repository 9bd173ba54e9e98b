#include "api/chat_request.h"

#include <array>
#include <utility>

#include "api/chat_messages.h"
#include "api/chat_prompt.h"
#include "api/request_error.h"
#include "engine/model_text.h"
#include "engine/reasoning_switch.h"

namespace bl::openai {
namespace {

// The fields of a chat request beside those that completions have, too. Nothing forces calls, so
// whether they may be parallel has no effect.
constexpr std::array kOwnFields{"messages",
                                "tools",
                                "tool_choice",
                                "parallel_tool_calls",
                                "add_generation_prompt",
                                "chat_template_kwargs",
                                "template_vars",
                                "enable_thinking",
                                "reasoning_effort",
                                "reasoning",
                                "verbosity"};

void switch_reasoning(OrderedJson& variables, bool on) {
  for (const char* name : kReasoningSwitches) variables[name] = on;
}

void set_effort(OrderedJson& variables, const OrderedJson& effort) {
  variables["reasoning_effort"] = effort;
  if (effort == "none") switch_reasoning(variables, false);
}

// "reasoning": {"enabled": true, "effort": "high"}, as OpenRouter and TabbyAPI have it.
void read_reasoning(const OrderedJson& body, OrderedJson& variables) {
  const OrderedJson* reasoning = given(body, "reasoning");
  if (reasoning == nullptr) return;
  if (!reasoning->is_object()) {
    fail_at(ErrorCode::kInvalidArgument, "reasoning", "reasoning is {}, should be an object",
            json_shown(*reasoning));
  }
  if (const OrderedJson* effort = given(*reasoning, "effort")) set_effort(variables, *effort);
  if (given(*reasoning, "enabled") != nullptr) {
    switch_reasoning(variables, read_flag(*reasoning, "reasoning.enabled", true));
  }
}

// Later ones win: the object "reasoning", fields of the body, the variables themselves.
OrderedJson read_template_variables(const OrderedJson& body) {
  OrderedJson variables = OrderedJson::object();
  read_reasoning(body, variables);
  if (const OrderedJson* effort = given(body, "reasoning_effort")) set_effort(variables, *effort);
  for (const char* key : {"enable_thinking", "verbosity"}) {
    if (const OrderedJson* value = given(body, key)) variables[key] = *value;
  }
  for (const char* key : {"template_vars", "chat_template_kwargs"}) {
    const OrderedJson* own = given(body, key);
    if (own == nullptr) continue;
    if (!own->is_object()) {
      fail_at(ErrorCode::kInvalidArgument, key, "{} is {}, should be an object", key,
              json_shown(*own));
    }
    for (const auto& [name, value] : own->items()) variables[name] = value;
  }
  variables["add_generation_prompt"] = read_flag(body, "add_generation_prompt", true);
  return variables;
}

// Whether the model is told of the tools. Nothing makes it call one.
bool offers_tools(const OrderedJson& body) {
  const OrderedJson* choice = given(body, "tool_choice");
  if (choice == nullptr || *choice == "auto") return true;
  if (*choice == "none") return false;
  fail_at(ErrorCode::kUnsupported, "tool_choice",
          "tool_choice is {}, should be \"auto\" or \"none\"; structural_tag forces a call",
          json_shown(*choice));
}

}  // namespace

ChatRequest ChatRequest::read(const OrderedJson& body, const RequestDefaults& otherwise,
                              const SamplingParams& sampling) {
  ChatRequest request{read_request_fields(body, otherwise, sampling)};
  request.unknown = unknown_fields(body, kOwnFields);
  request.template_variables = read_template_variables(body);
  const OrderedJson* messages = given(body, "messages");
  request.messages = template_messages(messages == nullptr ? OrderedJson() : *messages);
  const OrderedJson* tools = given(body, "tools");
  if (offers_tools(body) && tools != nullptr) request.tools = template_tools(*tools);
  if (request.tools.empty()) request.tools = nullptr;  // templates ask in several ways for tools
  return request;
}

Request ChatRequest::engine_request(const ModelText& text) const {
  OrderedJson variables = template_variables;
  variables["messages"] = messages;
  if (!tools.is_null()) variables["tools"] = tools;
  // The template writes BOS itself where the model wants it.
  const std::string prompt = render_chat(text, variables);
  Request request =
      RequestFields::engine_request(text.tokenizer().encode(prompt, {.add_special = false}));
  request.continues_prompt = false;
  return request;
}

}  // namespace bl::openai
