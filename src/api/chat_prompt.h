#pragma once
#include <cstdint>
#include <optional>

#include "base/json_fwd.h"
#include "text/prompt_guard.h"

namespace bl {
class ModelText;
}

namespace bl::openai {

// Renders a conversation of OpenAI's form with the model's chat template. `variables` has the
// checked "messages" and all other variables. What OpenAI's form leaves to the template is settled
// for the template at hand:
//
// - The arguments of an earlier tool call are a JSON text in OpenAI's form. The template gets them
//   as an object; if it does not print objects as JSON, or works with a text only, as a text. A
//   text that is not JSON stays a text, or the one member "arguments" of an object where the
//   template needs an object. Missing or empty arguments are an empty object.
// - A null content stays null, for templates that test for it, unless the template would print it
//   as "None" or fails; then it is an empty text.
// - System messages may stand anywhere. If the template refuses them there, or at all, they become
//   text of the users' turns around them.
//
// This is found out by rendering the conversation with each form, so nothing here knows templates
// by name. Throws what ModelText::render() throws if every form fails: the error of the first one.
//
// Text of the variables never becomes special tokens (text/prompt_guard.h): encode the result with
// its `plain`.
struct ChatPromptOptions {
  std::optional<std::int64_t> now{};  // seconds since 1970, for templates that show the date;
                                      // nothing means the clock
  bool guarded = true;                // false: special tokens that messages spell become tokens
};
GuardedPrompt render_chat(const ModelText& text, const OrderedJson& variables,
                          const ChatPromptOptions& options = {});

}  // namespace bl::openai
