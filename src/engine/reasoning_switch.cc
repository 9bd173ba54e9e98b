#include "engine/reasoning_switch.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "engine/model_text.h"

namespace bl {
namespace {

// The prompt of a short conversation with one more variable; nothing where the template refuses it.
std::optional<std::string> prompt_with(const ModelText& text, const char* name,
                                       const OrderedJson& value) {
  OrderedJson variables;
  variables["messages"] = {{{"role", "user"}, {"content", "question"}}};
  variables["add_generation_prompt"] = true;
  variables[name] = value;
  try {
    return text.render(std::move(variables), 0);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) throw;
    return std::nullopt;
  }
}

// Whether the template makes more of this word than of any other, which it would print, ignore or
// refuse.
bool knows_effort(const ModelText& text, const std::string& effort) {
  constexpr std::string_view kOther = "b7x";
  const std::optional<std::string> with = prompt_with(text, "reasoning_effort", effort);
  std::optional<std::string> other = prompt_with(text, "reasoning_effort", std::string(kOther));
  if (!with || !other) return with.has_value();
  for (auto at = other->find(kOther); at != other->npos; at = other->find(kOther, at)) {
    other->replace(at, kOther.size(), effort);
    at += effort.size();
  }
  return *with != *other;
}

}  // namespace

OrderedJson reasoning_variables(const ModelText& text, bool on) {
  OrderedJson variables = OrderedJson::object();
  for (const char* name : kReasoningSwitches) {
    const std::optional<std::string> with = prompt_with(text, name, true);
    const std::optional<std::string> without = prompt_with(text, name, false);
    if (with && without && *with != *without) variables[name] = on;
  }
  if (!variables.empty()) return variables;
  using Efforts = std::array<const char*, 2>;
  for (const char* effort : on ? Efforts{"high", "medium"} : Efforts{"none", "no_think"}) {
    if (!knows_effort(text, effort)) continue;
    variables["reasoning_effort"] = effort;
    return variables;
  }
  fail(ErrorCode::kUnsupported,
       "the chat template has no switch for reasoning (enable_thinking, thinking, reasoning or "
       "reasoning_effort); leave --reasoning out, or set the variables that it has with "
       "--template-vars");
}

}  // namespace bl
