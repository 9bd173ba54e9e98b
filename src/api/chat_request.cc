#include "api/chat_request.h"

#include <utility>

#include "api/chat_messages.h"
#include "api/request_error.h"
#include "engine/model_text.h"

namespace bl::openai {
namespace {

OrderedJson read_template_variables(const OrderedJson& body) {
  OrderedJson variables = OrderedJson::object();
  if (const OrderedJson* own = given(body, "chat_template_kwargs")) {
    if (!own->is_object()) {
      fail_at(ErrorCode::kInvalidArgument, "chat_template_kwargs",
              "chat_template_kwargs is {}, should be an object", json_shown(*own));
    }
    variables = *own;
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
  request.template_variables = read_template_variables(body);
  const OrderedJson* messages = given(body, "messages");
  request.messages = template_messages(messages == nullptr ? OrderedJson() : *messages);
  const OrderedJson* tools = given(body, "tools");
  if (offers_tools(body) && tools != nullptr) request.tools = template_tools(*tools);
  return request;
}

Request ChatRequest::engine_request(const ModelText& text) const {
  OrderedJson variables = template_variables;
  variables["messages"] = messages;
  if (!tools.is_null()) variables["tools"] = tools;
  // The template writes BOS itself where the model wants it.
  const std::string prompt = text.render_chat(variables, std::nullopt);
  Request request =
      RequestFields::engine_request(text.tokenizer().encode(prompt, {.add_special = false}));
  request.continues_prompt = false;
  return request;
}

}  // namespace bl::openai
