#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace bl {

// The words of a model: its tokenizer, and its chat templates, parsed when they are first needed.
// Immutable but for that; not for several threads at once.
class ModelText {
 public:
  // `name` stands for the model in messages.
  ModelText(std::unique_ptr<Tokenizer> tokenizer, std::string name);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  bool has_chat_template() const { return tokenizer_->chat_template().has_value(); }
  // The template for conversations, or the one for tools where a model has its own for them.
  // Throws kNotFound where there is none.
  const ChatTemplate& chat_template(bool has_tools) const;

  // `variables` as given, the model's special tokens where they name none.
  std::string render(OrderedJson variables, std::optional<std::int64_t> now) const;
  // Messages as the model wants to see them before it answers.
  std::vector<std::int32_t> encode_chat(const OrderedJson& messages) const;

  // The special token that the template puts behind an answer; nothing where there is no template
  // or it puts none.
  std::optional<std::int32_t> end_of_turn() const;

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string name_;
  mutable std::unique_ptr<ChatTemplate> plain_;
  mutable std::unique_ptr<ChatTemplate> with_tools_;
};

}  // namespace bl
