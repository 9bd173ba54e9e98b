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
  // `name`: the model in error messages. `own`: replaces the model's templates; null: it does not.
  ModelText(std::shared_ptr<const Tokenizer> tokenizer, std::string name,
            std::shared_ptr<const ChatTemplate> own = nullptr);

  // Returns this tokenizer with another chat template; null: with the model's own ones.
  std::unique_ptr<ModelText> with_template(std::shared_ptr<const ChatTemplate> own) const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  bool has_chat_template() const {
    return own_ != nullptr || tokenizer_->chat_template().has_value();
  }
  // The chat template, or with tools the model's template for those, if it has one. Throws
  // kNotFound where there is none.
  const ChatTemplate& chat_template(bool has_tools) const;

  // Renders the template with `variables`, to which the model's special tokens are added where they
  // are missing. `now`: seconds since 1970, for templates that show the date.
  std::string render(OrderedJson variables, std::optional<std::int64_t> now) const;
  // As render(), for a conversation (`variables` has "messages"): an error names the message that
  // the template refuses, "messages[2] (tool): …".
  std::string render_chat(const OrderedJson& variables, std::optional<std::int64_t> now) const;
  // The tokens of a conversation to which the model is to answer. `variables`: further variables of
  // the template, an object.
  std::vector<std::int32_t> encode_chat(const OrderedJson& messages) const;
  std::vector<std::int32_t> encode_chat(const OrderedJson& messages, OrderedJson variables) const;

  // The special token that the template puts behind an answer; nothing where there is no template,
  // or none is put.
  std::optional<std::int32_t> end_of_turn() const;

 private:
  // Whether the first `count` messages alone end in the same error.
  bool fails_alike(OrderedJson variables, std::size_t count, const std::string& error,
                   std::optional<std::int64_t> now) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string name_;
  std::shared_ptr<const ChatTemplate> own_;
  mutable std::unique_ptr<ChatTemplate> plain_;
  mutable std::unique_ptr<ChatTemplate> with_tools_;
};

}  // namespace bl
