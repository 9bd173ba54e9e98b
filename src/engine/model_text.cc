#include "engine/model_text.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "text/jinja/strftime.h"

namespace bl {
namespace {

constexpr const char* kToolTemplate = "tool_use";

std::string role_of(const OrderedJson& message) {
  const bool has_role = message.is_object() && message.contains("role");
  return has_role && message["role"].is_string() ? message["role"].get<std::string>() : "no role";
}

// Some templates need variables that Transformers does not give; they have the meaning that
// llama-server gives them. Returns nothing where the template fails with them, too.
std::optional<std::string> render_with_more(const ChatTemplate& chosen, OrderedJson variables,
                                            std::optional<std::int64_t> now) {
  const auto tools = variables.find("tools");
  const bool has_tools = tools != variables.end() && !tools->is_null();
  const OrderedJson more = {
      {"functions", has_tools ? json_text(*tools) : ""},
      {"datetime", jinja::format_time("%b %d %Y %H:%M:%S GMT", now.value_or(std::time(nullptr)))}};
  const std::size_t before = variables.size();
  for (const auto& [name, value] : more.items()) {
    if (!variables.contains(name)) variables[name] = value;
  }
  if (variables.size() == before) return std::nullopt;
  try {
    return chosen.render(variables, now);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

ModelText::ModelText(std::shared_ptr<const Tokenizer> tokenizer, std::string name,
                     std::shared_ptr<const ChatTemplate> own)
    : tokenizer_(std::move(tokenizer)), name_(std::move(name)), own_(std::move(own)) {}

std::unique_ptr<ModelText> ModelText::with_template(std::shared_ptr<const ChatTemplate> own) const {
  return std::make_unique<ModelText>(tokenizer_, name_, std::move(own));
}

const ChatTemplate& ModelText::chat_template(bool has_tools) const {
  if (own_) return *own_;
  if (has_tools) {
    const auto& all = tokenizer_->chat_templates();
    const auto at = std::find_if(all.begin(), all.end(),
                                 [](const auto& entry) { return entry.first == kToolTemplate; });
    if (at != all.end()) {
      if (!with_tools_) {
        with_tools_ = std::make_unique<ChatTemplate>(at->second, name_ + ": tool template");
      }
      return *with_tools_;
    }
  }
  if (!plain_) {
    const std::optional<std::string> source = tokenizer_->chat_template();
    if (!source) {
      fail(ErrorCode::kNotFound,
           "{}: the model has no chat template; give it plain prompts, or a template with it",
           name_);
    }
    plain_ = std::make_unique<ChatTemplate>(*source, name_ + ": chat template");
  }
  return *plain_;
}

std::string ModelText::render(OrderedJson variables, std::optional<std::int64_t> now) const {
  for (const auto& [name, token] : tokenizer_->special_tokens()) {
    if (!variables.contains(name)) variables[name] = token;
  }
  const auto tools = variables.find("tools");
  const bool has_tools = tools != variables.end() && !tools->is_null() && !tools->empty();
  const ChatTemplate& chosen = chat_template(has_tools);
  try {
    return chosen.render(variables, now);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    if (auto text = render_with_more(chosen, std::move(variables), now)) return *std::move(text);
    throw;
  }
}

bool ModelText::fails_alike(OrderedJson variables, std::size_t count, const std::string& error,
                            std::optional<std::int64_t> now) const {
  OrderedJson& messages = variables["messages"];
  messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(count), messages.end());
  try {
    render(std::move(variables), now);
  } catch (const Error& other) {
    return error == other.what();
  }
  return false;
}

std::string ModelText::render_chat(const OrderedJson& variables,
                                   std::optional<std::int64_t> now) const {
  try {
    return render(variables, now);
  } catch (const Error& error) {
    const OrderedJson& messages = variables.at("messages");
    // A template that fails without any message, or at a bound of its work, is not refusing one.
    if (error.code() == ErrorCode::kLimit || messages.empty() ||
        fails_alike(variables, 0, error.what(), now)) {
      throw;
    }
    // Templates read messages in order, so that whatever begins with the refused one fails too.
    std::size_t taken = 0;  // so many messages do not fail like this
    std::size_t failing = messages.size();
    while (failing - taken > 1) {
      const std::size_t middle = taken + (failing - taken) / 2;
      (fails_alike(variables, middle, error.what(), now) ? failing : taken) = middle;
    }
    fail(error.code(), "messages[{}] ({}): {}", failing - 1, role_of(messages[failing - 1]),
         error.what());
  }
}

std::vector<std::int32_t> ModelText::encode_chat(const OrderedJson& messages) const {
  return encode_chat(messages, OrderedJson::object());
}

std::vector<std::int32_t> ModelText::encode_chat(const OrderedJson& messages,
                                                 OrderedJson variables) const {
  variables["messages"] = messages;
  variables["add_generation_prompt"] = true;
  // Templates write BOS themselves where the model wants it.
  return tokenizer_->encode(render_chat(variables, std::nullopt), {.add_special = false});
}

std::optional<std::int32_t> ModelText::end_of_turn() const {
  if (!has_chat_template()) return std::nullopt;
  constexpr std::string_view kAnswer = "a7Qz9answer";
  OrderedJson messages = OrderedJson::array();
  for (const auto& [role, content] :
       {std::pair<const char*, std::string_view>("user", "question"),
        std::pair<const char*, std::string_view>("assistant", kAnswer)}) {
    OrderedJson message;
    message["role"] = role;
    message["content"] = content;
    messages.push_back(std::move(message));
  }
  OrderedJson variables;
  variables["messages"] = std::move(messages);
  variables["add_generation_prompt"] = false;
  std::string text;
  try {
    text = render(std::move(variables), 0);
  } catch (const Error& error) {
    // The template refuses this conversation, and may take others.
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return std::nullopt;
  }
  const auto at = text.rfind(kAnswer);
  if (at == text.npos) return std::nullopt;
  const std::string behind = text.substr(at + kAnswer.size());
  const auto first = behind.find_first_not_of(" \n");
  if (first == behind.npos) return std::nullopt;
  const auto ids = tokenizer_->encode(behind.substr(first), {.add_special = false});
  if (ids.empty() || !tokenizer_->is_special(ids.front())) return std::nullopt;
  return ids.front();
}

}  // namespace bl
