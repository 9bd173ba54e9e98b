#include "api/answer_formats.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "engine/model_text.h"
#include "toolcall/detect_format.h"

namespace bl::openai {
namespace {

// All texts that the format's markers consist of.
std::vector<std::string> texts_of(const AnswerFormat& format) {
  std::vector<std::string> texts{format.string_delimiter, format.element_prefix,
                                 format.prompt,           format.writing.open,
                                 format.writing.call,     format.writing.parameter,
                                 format.writing.between,  format.writing.close};
  const auto add = [&](const Pattern& pattern) {
    for (const Pattern::Part& part : pattern.parts()) texts.push_back(part.text);
  };
  for (const auto* patterns : {&format.reasoning.open, &format.reasoning.close, &format.drop,
                               &format.calls, &format.close, &format.parameters_end}) {
    for (const Pattern& pattern : *patterns) add(pattern);
  }
  for (const ParameterSyntax& parameter : format.parameters) {
    add(parameter.open);
    texts.push_back(parameter.close);
  }
  return texts;
}

std::vector<std::int32_t> marks_of(const AnswerFormat& format, const Tokenizer& tokenizer) {
  const std::vector<std::string> texts = texts_of(format);
  std::vector<std::int32_t> marks;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    const std::string_view token = tokenizer.id_to_token(id);
    const bool used =
        !token.empty() && std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
          return text.find(token) != text.npos;
        });
    if (used) marks.push_back(id);
  }
  return marks;
}

// Whether a template's text compares roles with this one: it stands there as a string, not far
// behind the word "role".
bool names_role(std::string_view source, std::string_view role) {
  constexpr std::size_t kNear = 40;
  for (const char quote : {'"', '\''}) {
    const std::string quoted = quote + std::string(role) + quote;
    for (auto at = source.find(quoted); at != source.npos; at = source.find(quoted, at + 1)) {
      const std::size_t from = at - std::min(at, kNear);
      if (source.substr(from, at - from).find("role") != source.npos) return true;
    }
  }
  return false;
}

}  // namespace

const TemplateFormat& AnswerFormats::of(const ModelText& text, bool has_tools) {
  const std::string& source = text.chat_template(has_tools).source();
  const auto known = known_.find(source);
  if (known != known_.end()) return known->second;
  const auto render = [&](const OrderedJson& variables) -> std::optional<std::string> {
    try {
      return text.render(variables, 0);
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  TemplateFormat format;
  format.answers = detect_answer_format({source, render});
  format.marks = marks_of(format.answers, text.tokenizer());
  format.knows_developer = names_role(source, "developer");
  format.knows_function = names_role(source, "function");
  return known_.emplace(source, std::move(format)).first->second;
}

}  // namespace bl::openai
