#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "toolcall/answer_format.h"

namespace bl {
class ModelText;
}

namespace bl::openai {

// What a chat template wants answers to look like, and what it knows of messages.
struct TemplateFormat {
  AnswerFormat answers;
  // The special tokens of the model that the format's markers consist of, in rising order. Their
  // text has to be in the answer's text.
  std::vector<std::int32_t> marks;
  bool knows_developer = false;  // has a use for messages of the role "developer"
  bool knows_function = false;   // and of the role "function"
};

// The formats of a model's chat templates, each found out on first use by trying the template.
// Must not be used by several threads at once.
class AnswerFormats {
 public:
  // `end_tokens`: of the model.
  explicit AnswerFormats(std::vector<std::int32_t> end_tokens)
      : end_tokens_(std::move(end_tokens)) {}
  const std::vector<std::int32_t>& end_tokens() const { return end_tokens_; }
  // The format of the template that `text` uses with tools or without. Throws what
  // ModelText::chat_template() throws.
  const TemplateFormat& of(const ModelText& text, bool has_tools);

 private:
  std::vector<std::int32_t> end_tokens_;
  std::map<std::string, TemplateFormat> known_;  // by the template's text
};

}  // namespace bl::openai
