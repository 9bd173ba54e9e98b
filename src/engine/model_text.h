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

// A model's tokenizer and chat templates. Templates are parsed when they are first used, so it must
// not be used by several threads at once.
class ModelText {
 public:
  // `name`: the model in error messages.
  ModelText(std::unique_ptr<Tokenizer> tokenizer, std::string name);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  bool has_chat_template() const { return tokenizer_->chat_template().has_value(); }
  // The chat template, or with tools the model's template for those, if it has one. Throws
  // kNotFound where there is none.
  const ChatTemplate& chat_template(bool has_tools) const;

  // Renders the template with `variables`, to which the model's special tokens are added where they
  // are missing. `now`: seconds since 1970, for templates that show the date.
  std::string render(OrderedJson variables, std::optional<std::int64_t> now) const;
  // The tokens of a conversation to which the model is to answer.
  std::vector<std::int32_t> encode_chat(const OrderedJson& messages) const;

  // The special token that the template puts behind an answer; nothing where there is no template,
  // or none is put.
  std::optional<std::int32_t> end_of_turn() const;

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string name_;
  mutable std::unique_ptr<ChatTemplate> plain_;
  mutable std::unique_ptr<ChatTemplate> with_tools_;
};

}  // namespace bl
