#include "api/chat_prompt.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include "api/system_turns.h"
#include "base/error.h"
#include "base/json.h"
#include "engine/model_text.h"
#include "text/chat_template.h"

namespace bl::openai {
namespace {

constexpr const char* kNeedle = "needle_2f6c";

// How the arguments of tool calls are given to the template.
enum class Arguments {
  kObjects,  // as the text says; a text that is not JSON stays a text
  kWrapped,  // always as objects
  kTexts,
  kObjectProbe,  // as an object with the member kNeedle, to see what the template makes of objects
  kTextProbe,    // as the text of such an object
};
enum class NullContent { kNull, kEmptyText };

bool is_blank(const OrderedJson& value) {
  return value.is_string() &&
         value.get_ref<const std::string&>().find_first_not_of(" \t\r\n") == std::string::npos;
}

std::optional<OrderedJson> parsed(const std::string& text) {
  try {
    return parse_ordered_json(text, "arguments");
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The JSON text of a value as Python writes it, which is what clients and templates write.
std::string python_json(const OrderedJson& value) {
  static const ChatTemplate kWriter("{{ value | tojson }}", "arguments");
  OrderedJson variables;
  variables["value"] = value;
  return kWriter.render(variables, 0);
}

OrderedJson arguments_as(Arguments form, const OrderedJson& given) {
  if (form == Arguments::kObjectProbe) return {{kNeedle, "value"}};
  if (form == Arguments::kTextProbe) return python_json({{kNeedle, "value"}});
  if (form == Arguments::kTexts) {
    if (given.is_null() || is_blank(given)) return "{}";
    return given.is_string() ? given : OrderedJson(python_json(given));
  }
  if (given.is_null() || is_blank(given)) return OrderedJson::object();
  if (!given.is_string()) return given;
  std::optional<OrderedJson> value = parsed(given.get_ref<const std::string&>());
  if (form == Arguments::kWrapped && (!value || !value->is_object())) {
    return {{"arguments", given}};
  }
  return value ? *std::move(value) : given;
}

// Calls visit(call) for the object of each tool call that has name and arguments.
template <class Message, class Visit>
void each_call(Message& message, Visit&& visit) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (auto& one : *calls) {
    if (!one.is_object()) continue;
    auto& call = one.contains("function") ? one["function"] : one;
    if (call.is_object() && (call.contains("arguments") || &call != &one)) visit(call);
  }
}

bool has_null_content(const OrderedJson& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_null();
}

std::size_t count_of(std::string_view word, std::string_view text) {
  std::size_t count = 0;
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

class Rendering {
 public:
  Rendering(const ModelText& text, const OrderedJson& variables, std::optional<std::int64_t> now)
      : text_(text), variables_(variables), now_(now) {
    for (OrderedJson& message : variables_["messages"]) {
      has_nulls_ = has_nulls_ || has_null_content(message);
      each_call(message, [this](OrderedJson&) { has_calls_ = true; });
    }
  }

  std::string run() {
    if (!has_calls_ && !has_nulls_) return text_.render_chat(variables_, now_);
    for (const Arguments form : forms()) {
      const bool is_text = form == Arguments::kTexts;
      const NullContent content =
          content_for(is_text ? Arguments::kTextProbe : Arguments::kObjectProbe);
      std::optional<std::string> prompt = attempt(form, content);
      if (!prompt && has_nulls_) prompt = attempt(form, NullContent::kEmptyText);
      if (prompt) return *std::move(prompt);
    }
    return text_.render_chat(variables_, now_);  // its error names the message that is refused
  }

 private:
  // The forms of arguments to try, the right one first.
  std::array<Arguments, 3> forms() {
    if (has_calls_) {
      const NullContent content = content_for(Arguments::kObjectProbe);
      const std::optional<std::string> probe = attempt(Arguments::kObjectProbe, content);
      // Python's text of a dictionary begins so; JSON has other quotation marks.
      const bool prints_python = probe && probe->find(fmt::format("{{'{}", kNeedle)) != probe->npos;
      if (!probe || prints_python) {
        return {Arguments::kTexts, Arguments::kObjects, Arguments::kWrapped};
      }
    }
    return {Arguments::kObjects, Arguments::kWrapped, Arguments::kTexts};
  }

  // What the template makes of null contents. The arguments are a probe's, so that words of the
  // conversation do not decide.
  NullContent content_for(Arguments probe) {
    if (!has_nulls_) return NullContent::kNull;
    const std::optional<std::string> null = attempt(probe, NullContent::kNull);
    const std::optional<std::string> empty = attempt(probe, NullContent::kEmptyText);
    const bool prints_none = null && empty && count_of("None", *null) > count_of("None", *empty);
    return prints_none || (!null && empty) ? NullContent::kEmptyText : NullContent::kNull;
  }

  // Returns nothing where the template fails.
  std::optional<std::string> attempt(Arguments form, NullContent content) {
    OrderedJson variables = variables_;
    for (OrderedJson& message : variables["messages"]) {
      if (content == NullContent::kEmptyText && has_null_content(message)) message["content"] = "";
      each_call(message, [form](OrderedJson& call) {
        const OrderedJson given = call.value("arguments", OrderedJson());
        call["arguments"] = arguments_as(form, given);
      });
    }
    try {
      return text_.render(std::move(variables), now_);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  const ModelText& text_;
  OrderedJson variables_;
  std::optional<std::int64_t> now_;
  bool has_calls_ = false;
  bool has_nulls_ = false;
};

// Templates that fail get the conversation with fewer system messages. Throws the first error.
std::string render_any_systems(const ModelText& text, const OrderedJson& variables,
                               std::int64_t now) {
  const auto attempt = [&](const OrderedJson& messages) -> std::optional<std::string> {
    OrderedJson some = variables;
    some["messages"] = messages;
    try {
      return Rendering(text, some, now).run();
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  try {
    return Rendering(text, variables, now).run();
  } catch (const Error&) {
    for (const SystemFolding folding : {SystemFolding::kLater, SystemFolding::kAll}) {
      const auto folded = fold_systems(variables.at("messages"), folding);
      std::optional<std::string> prompt = folded ? attempt(*folded) : std::nullopt;
      if (prompt) return *std::move(prompt);
    }
    throw;
  }
}

}  // namespace

GuardedPrompt render_chat(const ModelText& text, const OrderedJson& variables,
                          const ChatPromptOptions& options) {
  // All renderings of one prompt see the same time.
  const std::int64_t now = options.now.value_or(std::time(nullptr));
  const auto render = [&](const OrderedJson& some) { return render_any_systems(text, some, now); };
  if (!options.guarded) return {render(variables), {}};
  return PromptGuard(text.tokenizer()).render(variables, render);
}

}  // namespace bl::openai
