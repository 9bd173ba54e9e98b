#include "api/chat_request.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "api/answer_form.h"
#include "api/answer_formats.h"
#include "api/chat_messages.h"
#include "api/chat_prompt.h"
#include "api/reasoning_limit.h"
#include "api/request_error.h"
#include "engine/model_text.h"
#include "engine/reasoning_switch.h"
#include "text/jinja/strftime.h"
#include "toolcall/detect_format.h"

namespace bl::openai {
namespace {

// The fields of a chat request beside those that completions have, too.
constexpr std::array kOwnFields{"messages",
                                "tools",
                                "tool_choice",
                                "parallel_tool_calls",
                                "add_generation_prompt",
                                "continue_final_message",
                                "chat_template_kwargs",
                                "template_vars",
                                "enable_thinking",
                                "reasoning_effort",
                                "reasoning",
                                "reasoning_format",
                                "reasoning_budget",
                                "reasoning_budget_tokens",
                                "reasoning_budget_message",
                                "thinking_budget",
                                "thinking_budget_tokens",
                                "thinking_token_budget",
                                "verbosity",
                                "timings_per_token",
                                "return_progress",
                                "verbose",
                                "echo",
                                "suffix",
                                "functions"};

constexpr std::array kRefused{"echo", "suffix", "functions"};

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

// Later ones win: the server's own choice and its variables, the object "reasoning", fields of the
// body, the variables themselves.
OrderedJson read_template_variables(const OrderedJson& body, const RequestDefaults& otherwise) {
  OrderedJson variables = OrderedJson::object();
  if (otherwise.reasoning) switch_reasoning(variables, *otherwise.reasoning);
  if (otherwise.template_variables != nullptr) variables.update(*otherwise.template_variables);
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

// The name in {"type": "function", "function": {"name": …}}, or in its shorter form without
// "function".
std::string function_name(const OrderedJson& choice, const std::string& at) {
  const OrderedJson* function = choice.is_object() ? given(choice, "function") : nullptr;
  const OrderedJson& holder = function != nullptr ? *function : choice;
  const OrderedJson* name = holder.is_object() ? given(holder, "name") : nullptr;
  if (name == nullptr || !name->is_string()) {
    fail_at(ErrorCode::kInvalidArgument, at, "{} is {}, should name a function", at,
            json_shown(choice));
  }
  return name->get<std::string>();
}

ToolChoice::Kind choice_kind(const OrderedJson& mode, const std::string& at) {
  if (mode == "auto") return ToolChoice::Kind::kAuto;
  if (mode == "none") return ToolChoice::Kind::kNone;
  if (mode == "required" || mode == "any") return ToolChoice::Kind::kRequired;
  fail_at(ErrorCode::kInvalidArgument, at,
          "{} is {}, should be \"auto\", \"none\", \"required\" or the name of a function", at,
          json_shown(mode));
}

// {"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}, with or without the inner
// object.
void read_allowed_tools(const OrderedJson& given_choice, ToolChoice& choice) {
  const OrderedJson* inner = given(given_choice, "allowed_tools");
  const OrderedJson& allowed = inner != nullptr ? *inner : given_choice;
  const OrderedJson* tools = allowed.is_object() ? given(allowed, "tools") : nullptr;
  if (tools == nullptr || !tools->is_array() || tools->empty()) {
    fail_at(ErrorCode::kInvalidArgument, "tool_choice",
            "tool_choice of type allowed_tools should have a list of tools");
  }
  if (const OrderedJson* mode = given(allowed, "mode")) {
    choice.kind = choice_kind(*mode, "tool_choice.mode");
  }
  for (const OrderedJson& tool : *tools) {
    choice.names.push_back(function_name(tool, "tool_choice.tools"));
  }
}

ToolChoice read_tool_choice(const OrderedJson& body) {
  ToolChoice choice;
  choice.parallel = read_flag(body, "parallel_tool_calls", true);
  const OrderedJson* given_choice = given(body, "tool_choice");
  if (given_choice == nullptr) return choice;
  if (!given_choice->is_object()) {
    choice.kind = choice_kind(*given_choice, "tool_choice");
    return choice;
  }
  if (given_choice->value("type", OrderedJson()) == "allowed_tools") {
    read_allowed_tools(*given_choice, choice);
    return choice;
  }
  choice.kind = ToolChoice::Kind::kRequired;
  choice.names = {function_name(*given_choice, "tool_choice")};
  choice.parallel = false;
  return choice;
}

void check_tool_choice(const ChatRequest& request) {
  if (request.tool_choice.kind == ToolChoice::Kind::kRequired && request.tools.is_null()) {
    fail_at(ErrorCode::kInvalidArgument, "tool_choice",
            "tool_choice demands a call, but there are no tools");
  }
  for (const std::string& name : request.tool_choice.names) {
    const bool is_offered =
        std::any_of(request.tools.begin(), request.tools.end(), [&](const OrderedJson& tool) {
          return tool.contains("function") && tool["function"]["name"] == name;
        });
    if (!is_offered && request.tool_choice.kind != ToolChoice::Kind::kNone) {
      fail_at(ErrorCode::kInvalidArgument, "tool_choice",
              "tool_choice names {}, which is not among the tools", json_shown(name));
    }
  }
}

constexpr std::array kBudgetNames{"reasoning_budget", "reasoning_budget_tokens", "thinking_budget",
                                  "thinking_budget_tokens", "thinking_token_budget"};

ReasoningBudget read_budget(const OrderedJson& body) {
  ReasoningBudget budget;
  const auto read = [&](const OrderedJson& object, const char* key, const std::string& at) {
    const OrderedJson* tokens = given(object, key);
    if (tokens == nullptr) return;
    if (!tokens->is_number_integer()) {
      fail_at(ErrorCode::kInvalidArgument, at, "{} is {}, should be a number of tokens", at,
              json_shown(*tokens));
    }
    budget.tokens = tokens->get<std::int64_t>();
  };
  if (const OrderedJson* reasoning = given(body, "reasoning")) {
    read(*reasoning, "max_tokens", "reasoning.max_tokens");
  }
  for (const char* key : kBudgetNames) read(body, key, key);
  if (const OrderedJson* message = given(body, "reasoning_budget_message")) {
    if (!message->is_string()) {
      fail_at(ErrorCode::kInvalidArgument, "reasoning_budget_message",
              "reasoning_budget_message is {}, should be a text", json_shown(*message));
    }
    budget.message = message->get<std::string>();
  }
  return budget;
}

// "reasoning_format": whether reasoning stands in a field of its own. Clients know several names
// for that, and "none" for the opposite.
bool reads_reasoning_apart(const OrderedJson& body, bool otherwise) {
  const OrderedJson* format = given(body, "reasoning_format");
  if (format == nullptr) return otherwise;
  if (format->is_string()) return *format != "none";
  fail_at(ErrorCode::kInvalidArgument, "reasoning_format",
          "reasoning_format is {}, should be a name; \"none\" leaves reasoning in the content",
          json_shown(*format));
}

bool switches_reasoning_off(const OrderedJson& variables) {
  return std::any_of(kReasoningSwitches.begin(), kReasoningSwitches.end(), [&](const char* name) {
    return variables.contains(name) && variables[name] == false;
  });
}

std::string without_end_space(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  return text.substr(0, end == text.npos ? 0 : end + 1);
}

// Cuts what the template has put behind the last message.
void cut_behind(GuardedPrompt& prompt, const std::string& said) {
  const std::size_t at = prompt.text.rfind(said);
  if (at == std::string::npos) {
    fail_at(ErrorCode::kUnsupported, "continue_final_message",
            "the model's chat template changes the last message, so it cannot be continued");
  }
  prompt.text.resize(at + said.size());
  std::erase_if(prompt.plain, [&](std::size_t place) { return place >= prompt.text.size(); });
}

bool is_assistant(const OrderedJson& message) { return message["role"] == "assistant"; }

// What llama-server does with a last message of an assistant where nothing is said about it.
bool prefills(const OrderedJson& body, const OrderedJson& messages) {
  if (!is_assistant(messages.back()) || !read_flag(body, "add_generation_prompt", true)) {
    return false;
  }
  if (messages.size() > 1 && is_assistant(messages[messages.size() - 2])) {
    fail_at(ErrorCode::kInvalidArgument, "messages",
            "the last two messages are an assistant's; only one can be continued");
  }
  const OrderedJson& last = messages.back();
  return last.contains("content") && last["content"].is_string() && !last.contains("tool_calls");
}

bool reads_continuation(const OrderedJson& body, const OrderedJson& messages,
                        bool prefill_assistant) {
  if (prefill_assistant && given(body, "continue_final_message") == nullptr) {
    return prefills(body, messages);
  }
  if (!read_flag(body, "continue_final_message", false)) return false;
  const OrderedJson& last = messages.back();
  const bool can_go_on = is_assistant(last) && last.contains("content") &&
                         last["content"].is_string() && !last.contains("tool_calls");
  if (!can_go_on || (given(body, "add_generation_prompt") != nullptr &&
                     read_flag(body, "add_generation_prompt", false))) {
    fail_at(ErrorCode::kInvalidArgument, "continue_final_message",
            "continue_final_message needs a last message of an assistant with a text, and "
            "add_generation_prompt false or left out");
  }
  return true;
}

// Messages of roles that a template does not know are given as those that come closest.
void settle_roles(OrderedJson& messages, const TemplateFormat& format) {
  for (OrderedJson& message : messages) {
    OrderedJson& role = message["role"];
    if (role == "developer" && !format.knows_developer) role = "system";
    if (role == "function" && !format.knows_function) role = "tool";
  }
}

// The prompt without what asks for an answer; empty where the template fails without it.
std::string prompt_without_tail(const ModelText& text, OrderedJson variables, std::int64_t now) {
  variables["add_generation_prompt"] = false;
  try {
    return render_chat(text, variables, {.now = now, .guarded = false}).text;
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

ChatRequest ChatRequest::read(const OrderedJson& body, const RequestDefaults& otherwise,
                              const SamplingParams& sampling) {
  refuse_fields(body, kRefused);
  ChatRequest request{read_request_fields(body, otherwise, sampling)};
  request.unknown = unknown_fields(body, kOwnFields);
  request.template_variables = read_template_variables(body, otherwise);
  const OrderedJson* messages = given(body, "messages");
  request.messages = template_messages(messages == nullptr ? OrderedJson() : *messages);
  request.continues_message =
      reads_continuation(body, request.messages, otherwise.prefill_assistant);
  if (request.continues_message) request.template_variables["add_generation_prompt"] = false;
  request.tool_choice = read_tool_choice(body);
  request.reasoning_budget = read_budget(body);
  request.separate_reasoning = reads_reasoning_apart(body, otherwise.separate_reasoning);
  request.verbose = read_flag(body, "verbose", otherwise.verbose);
  request.timings_per_token = read_flag(body, "timings_per_token", false);
  request.return_progress = request.stream && read_flag(body, "return_progress", false);
  request.special_tokens_in_messages = otherwise.special_tokens_in_messages;
  const OrderedJson* tools = given(body, "tools");
  if (tools != nullptr && request.tool_choice.kind != ToolChoice::Kind::kNone) {
    request.tools = template_tools(*tools);
  }
  if (request.tools.empty()) request.tools = nullptr;  // templates ask in several ways for tools
  check_tool_choice(request);
  return request;
}

OrderedJson ChatRequest::prompt_variables() const {
  OrderedJson variables = template_variables;
  variables["messages"] = messages;
  if (!tools.is_null()) variables["tools"] = tools;
  return variables;
}

// The prompt, and where the answer begins in it.
ChatRequest::Prompt ChatRequest::render(const ModelText& text, const TemplateFormat& format) const {
  OrderedJson variables = prompt_variables();
  settle_roles(variables["messages"], format);
  const std::int64_t now = std::time(nullptr);
  // Templates that tell the date show one of long ago where nobody gives it.
  if (!variables.contains("date_string")) {
    variables["date_string"] = jinja::format_time("%d %b %Y", now);
  }
  Prompt prompt{render_chat(text, variables, {.now = now, .guarded = !special_tokens_in_messages}),
                {}};
  if (continues_message) {
    const std::string said = without_end_space(messages.back()["content"].get<std::string>());
    cut_behind(prompt.text, said);
    prompt.start = find_answer_start(format.answers, prompt.text.text, said);
  } else if (format.answers.has_reasoning() || !format.answers.prompt.empty()) {
    const std::string without = prompt_without_tail(text, variables, now);
    prompt.start = find_answer_start(format.answers, prompt.text.text,
                                     generation_tail(prompt.text.text, without));
  }
  if (format.answers.has_reasoning() && switches_reasoning_off(template_variables)) {
    skip_reasoning(text, std::move(variables), now, format.answers, prompt);
  }
  return prompt;
}

// Ends reasoning that the prompt has begun, and begins and ends it where the template has no switch
// for it. Formats whose answers begin with a header of their own are left alone.
void ChatRequest::skip_reasoning(const ModelText& text, OrderedJson variables, std::int64_t now,
                                 const AnswerFormat& format, Prompt& prompt) const {
  const std::string close = format.reasoning.close.front().opening();
  if (prompt.start.in_reasoning) {
    prompt.text.text += close;
    prompt.start = {};
    return;
  }
  if (continues_message || !format.prompt.empty() || format.reasoning.open.empty() ||
      variables["add_generation_prompt"] == false) {
    return;
  }
  switch_reasoning(variables, true);
  const std::string with =
      render_chat(text, variables, {.now = now, .guarded = !special_tokens_in_messages}).text;
  if (with != prompt.text.text) return;
  prompt.text.text += format.reasoning.open.front().opening() + close;
  prompt.start = {};
}

std::string ChatRequest::prompt_text(const ModelText& text, AnswerFormats& formats) const {
  return render(text, formats.of(text, !tools.is_null())).text.text;
}

ChatTurn ChatRequest::turn(const ModelText& text, AnswerFormats& formats) const {
  const TemplateFormat& format = formats.of(text, !tools.is_null());
  const Prompt prompt = render(text, format);
  auto reading = std::make_shared<ChatReading>();
  reading->format = format.answers;
  if (!tools.is_null()) reading->tools = ToolSet(parse_json(json_text(tools), "tools"));
  reading->options.start = prompt.start;
  reading->options.separate_reasoning = separate_reasoning;
  reading->options.read_calls = !tools.is_null();
  // The template writes BOS itself where the model wants it.
  Request request = RequestFields::engine_request(text.tokenizer().encode(
      prompt.text.text, {.add_special = false, .plain = prompt.text.plain}));
  request.continues_prompt = false;
  request.tell_start = return_progress;
  request.shown_special = format.marks;
  request.constraint = answer_constraint({.format = format.answers,
                                          .start = reading->options.start,
                                          .request = *this,
                                          .tokenizer = text.tokenizer(),
                                          .end_tokens = formats.end_tokens()});
  if (reasoning_budget.tokens >= 0 && format.answers.has_reasoning()) {
    request.after_sampling =
        limit_reasoning({.reading = reading,
                         .tokenizer = text.tokenizer(),
                         .budget = reasoning_budget,
                         .prompt = std::ssize(request.prompt),
                         .choices = static_cast<std::size_t>(sampling.answers())});
  }
  return {std::move(request), std::move(reading)};
}

}  // namespace bl::openai
