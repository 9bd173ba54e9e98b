#include "toolcall/call_syntax.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace bl {
namespace {

// Cuts `text` at the first occurrence of `mark`; without it, all of the text comes before.
std::pair<std::string, std::string> cut_at(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == text.npos) return {std::string(text), std::string()};
  return {std::string(text.substr(0, at)), std::string(text.substr(at + mark.size()))};
}

// `text` with `value` in the place of a mark.
std::string with(std::string text, std::string_view mark, std::string_view value) {
  const std::size_t at = text.find(mark);
  return at == text.npos ? text : text.replace(at, mark.size(), value);
}

ArgumentsForm arguments_form(const AnswerFormat& format) {
  switch (format.calls.front().form()) {
    case CallForm::kParameters:
    case CallForm::kElements:
      return ArgumentsForm::kParameters;
    case CallForm::kPython:
      return ArgumentsForm::kPython;
    case CallForm::kBraces:
      return ArgumentsForm::kBraces;
    default:
      return ArgumentsForm::kJson;
  }
}

}  // namespace

CallSyntax call_syntax(const AnswerFormat& format) {
  BL_CHECK(format.has_calls());
  const CallWriting& writing = format.writing;
  CallSyntax syntax;
  syntax.open = writing.open;
  syntax.between = writing.between;
  syntax.close = writing.close;
  syntax.shared = !writing.open.empty();
  syntax.form = arguments_form(format);
  const bool one_by_one = syntax.form == ArgumentsForm::kParameters;
  std::string rest;
  std::tie(syntax.before_name, rest) = cut_at(writing.call, "{name}");
  std::tie(syntax.before_arguments, syntax.after_arguments) =
      cut_at(rest, one_by_one ? "{parameters}" : "{arguments}");
  std::tie(syntax.before_key, rest) = cut_at(writing.parameter, "{key}");
  std::tie(syntax.before_value, syntax.after_value) = cut_at(rest, "{value}");
  syntax.string_delimiter = format.string_delimiter;
  // A call begins with the text in front of all that depends on the call.
  const std::string start = writing.open + writing.call;
  syntax.trigger = format.calls.front().opening();
  if (syntax.trigger.empty()) syntax.trigger = start.substr(0, start.find('{', 1));
  return syntax;
}

std::string write_call(const CallSyntax& syntax, std::string_view name,
                       std::string_view arguments) {
  return syntax.before_name + std::string(name) + with(syntax.before_arguments, "{name}", name) +
         std::string(arguments) + syntax.after_arguments;
}

std::string write_parameter(const CallSyntax& syntax, std::string_view key,
                            std::string_view value) {
  return syntax.before_key + std::string(key) + syntax.before_value + std::string(value) +
         with(syntax.after_value, "{key}", key);
}

}  // namespace bl
