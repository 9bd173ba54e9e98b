#include "text/prompt_guard.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace bl {
namespace {

constexpr char32_t kPlanes[] = {0xf0000, 0x100000};  // the private planes of Unicode
constexpr char32_t kPlaneSize = 0xfffe;              // characters that a plane can stand for
constexpr std::size_t kMaxKeptTokens = 8;  // beyond it, no token is kept in messages of assistants

bool in_plane(char32_t character, char32_t plane) {
  return character >= plane && character < plane + 0x10000;
}

void visit_strings(const OrderedJson& value, const std::function<void(const std::string&)>& visit) {
  if (value.is_string()) visit(value.get_ref<const std::string&>());
  if (!value.is_structured()) return;
  for (const auto& [key, item] : value.items()) {
    if (value.is_object()) visit(key);
    visit_strings(item, visit);
  }
}

// A private plane that no string uses.
char32_t free_plane(const OrderedJson& variables) {
  bool used[std::size(kPlanes)] = {};
  visit_strings(variables, [&](const std::string& text) {
    if (!is_valid_utf8(text)) return;
    for (std::size_t i = 0; i < text.size();) {
      const CodePoint point = code_point_at(text, i);
      for (std::size_t k = 0; k < std::size(kPlanes); ++k) {
        used[k] = used[k] || in_plane(point.value, kPlanes[k]);
      }
      i += point.size;
    }
  });
  for (std::size_t k = 0; k < std::size(kPlanes); ++k) {
    if (!used[k]) return kPlanes[k];
  }
  fail(ErrorCode::kInvalidArgument,
       "the messages spell control tokens and use both private planes of Unicode; leave out one");
}

// The text with every mark turned back into its character.
GuardedPrompt unmarked(std::string_view text, char32_t plane) {
  GuardedPrompt prompt;
  prompt.text.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = code_point_at(text, i);
    if (in_plane(point.value, plane)) {
      prompt.plain.push_back(prompt.text.size());
      append_utf8(point.value - plane, prompt.text);
    } else {
      prompt.text += text.substr(i, point.size);
    }
    i += point.size;
  }
  return prompt;
}

bool is_assistant(const OrderedJson& message) {
  if (!message.is_object()) return false;
  const auto role = message.find("role");
  return role != message.end() && role->is_string() &&
         role->get_ref<const std::string&>() == "assistant";
}

bool is_in(const std::vector<std::string>& tokens, std::string_view text, std::size_t at) {
  return std::any_of(tokens.begin(), tokens.end(),
                     [&](const std::string& token) { return text.substr(at).starts_with(token); });
}

}  // namespace

struct PromptGuard::Marking {
  char32_t plane = kPlanes[0];
  std::vector<std::string> kept;  // tokens that messages of assistants keep
  bool keep = false;              // while inside such a message
};

std::string PromptGuard::marked(const std::string& text, const Marking& marking) const {
  if (!is_valid_utf8(text)) return text;
  const std::vector<std::size_t> begins = tokenizer_.special_begins(text);
  if (begins.empty()) return text;
  std::string out;
  std::size_t done = 0;
  for (const std::size_t at : begins) {
    if (at < done || is_continuation(text[at])) continue;
    if (marking.keep && is_in(marking.kept, text, at)) continue;
    const CodePoint point = code_point_at(text, at);
    if (point.value >= kPlaneSize) continue;
    out.append(text, done, at - done);
    append_utf8(marking.plane + point.value, out);
    done = at + point.size;
  }
  return out.append(text, done);
}

OrderedJson PromptGuard::marked(const OrderedJson& value, const Marking& marking) const {
  if (value.is_string()) return marked(value.get_ref<const std::string&>(), marking);
  if (value.is_object()) {
    OrderedJson object = OrderedJson::object();
    for (const auto& [key, item] : value.items())
      object[marked(key, marking)] = marked(item, marking);
    return object;
  }
  if (!value.is_array()) return value;
  OrderedJson list = OrderedJson::array();
  for (const OrderedJson& item : value) list.push_back(marked(item, marking));
  return list;
}

OrderedJson PromptGuard::marked_variables(const OrderedJson& variables,
                                          const Marking& marking) const {
  OrderedJson all = OrderedJson::object();
  for (const auto& [key, value] : variables.items()) {
    if (key != "messages" || !value.is_array()) {
      all[key] = marked(value, marking);
      continue;
    }
    OrderedJson messages = OrderedJson::array();
    for (const OrderedJson& message : value) {
      Marking own = marking;
      own.keep = is_assistant(message);
      messages.push_back(marked(message, own));
    }
    all[key] = std::move(messages);
  }
  return all;
}

// The special tokens that the strings spell.
void PromptGuard::find_tokens(const OrderedJson& value, std::vector<std::string>& tokens) const {
  visit_strings(value, [&](const std::string& text) {
    for (const std::size_t at : tokenizer_.special_begins(text)) {
      const std::vector<std::int32_t> ids =
          tokenizer_.encode(std::string_view(text).substr(at, 256), {.add_special = false});
      if (ids.empty() || !tokenizer_.is_special(ids.front())) continue;
      std::string token(tokenizer_.id_to_token(ids.front()));
      if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) {
        tokens.push_back(std::move(token));
      }
      if (tokens.size() > kMaxKeptTokens) return;
    }
  });
}

GuardedPrompt PromptGuard::render(const OrderedJson& variables, const Render& render) const {
  bool spelled = false;
  visit_strings(variables, [&](const std::string& text) {
    spelled = spelled || !tokenizer_.special_begins(text).empty();
  });
  std::string plain = render(variables);
  if (!spelled) return {std::move(plain), {}};

  Marking marking;
  marking.plane = free_plane(variables);
  const auto try_marking = [&](const OrderedJson& changed) -> std::optional<GuardedPrompt> {
    try {
      return unmarked(render(changed), marking.plane);
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  std::optional<GuardedPrompt> prompt = try_marking(marked_variables(variables, marking));
  if (prompt && prompt->text == plain) return std::move(*prompt);

  // The template looks at some of the tokens. Find those that it looks at in what assistants said.
  OrderedJson said = OrderedJson::array();
  const auto messages = variables.find("messages");
  if (messages != variables.end() && messages->is_array()) {
    for (const OrderedJson& message : *messages) {
      if (is_assistant(message)) said.push_back(message);
    }
  }
  std::vector<std::string> tokens;
  find_tokens(said, tokens);
  if (tokens.size() > kMaxKeptTokens) tokens.clear();
  std::vector<std::string> kept;
  for (const std::string& token : tokens) {
    marking.kept = {token};
    const std::optional<GuardedPrompt> other = try_marking(marked_variables(variables, marking));
    if (other && (!prompt || other->text != prompt->text)) kept.push_back(token);
  }
  marking.kept = std::move(kept);
  return unmarked(render(marked_variables(variables, marking)), marking.plane);
}

}  // namespace bl
