#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "text/tokenizer.h"

namespace bl {

// A rendered prompt, and where text by strangers spells special tokens in it.
struct GuardedPrompt {
  std::string text;
  std::vector<std::size_t> plain;  // for EncodeOptions
};

// Keeps the text of messages, tools and other template variables from becoming special tokens:
// those come from the template alone.
//
// Where a variable spells a special token, the first character of the token is replaced by a mark
// from a private plane of Unicode before the template is rendered. The mark travels through the
// template as the character would; afterwards it becomes the character again, and its place is
// noted. Some templates look for their own tokens in what assistants said earlier (to leave out
// reasoning, for example). Such tokens stay as they are in messages of assistants, if marking them
// changes the prompt.
class PromptGuard {
 public:
  using Render = std::function<std::string(const OrderedJson&)>;

  explicit PromptGuard(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Renders `variables` with `render`, which may add variables that are trusted and may throw.
  // Renders once where no variable spells a special token, and a few times more otherwise. Throws
  // kInvalidArgument if the variables use both private planes themselves.
  GuardedPrompt render(const OrderedJson& variables, const Render& render) const;

 private:
  struct Marking;
  std::string marked(const std::string& text, const Marking& marking) const;
  OrderedJson marked(const OrderedJson& value, const Marking& marking) const;
  OrderedJson marked_variables(const OrderedJson& variables, const Marking& marking) const;
  void find_tokens(const OrderedJson& value, std::vector<std::string>& tokens) const;

  const Tokenizer& tokenizer_;
};

}  // namespace bl
