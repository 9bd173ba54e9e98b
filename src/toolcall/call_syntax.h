#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "toolcall/answer_format.h"

namespace bl {

// How the arguments of a call are written, for whoever constrains generation to a tool's schema.
enum class ArgumentsForm : std::uint8_t {
  kJson,        // one JSON object
  kParameters,  // parameters one by one between the texts of CallSyntax::parameter_*
  kPython,      // name=value, …, where values are Python literals
  kBraces,      // {name:value, …} with bare names, where strings stand between string_delimiter
};

// The text of calls as a model was trained to write them: literal parts, and what stands between
// them. A whole answer with calls is
//   open, call, (between, call)*, close
// and a call is before_name, the tool's name, before_arguments, the arguments, after_arguments.
// `{index}` and `{number}` in these texts are the call's index from 0 and from 1, `{id}` an id.
// Some formats repeat a name: `{name}` in before_arguments, `{key}` in after_value.
struct CallSyntax {
  std::string trigger;  // with this text a call begins, whatever the tool: the rest can be forced
  std::string open, between, close;
  std::string before_name, before_arguments, after_arguments;
  ArgumentsForm form = ArgumentsForm::kJson;
  // For kParameters: before_key, the parameter's name, before_value, its value, after_value.
  // `{is_string}` and `{json_type}` in before_value depend on the value's type.
  std::string before_key, before_value, after_value;
  std::string string_delimiter;  // for kBraces
  bool shared = false;           // several calls stand between one open and one close
};

// The syntax of a format that has calls.
CallSyntax call_syntax(const AnswerFormat& format);

// The text of one call in the format's canonical writing, with {index}, {number} and {id} left in
// it. `arguments` stand in the place of {arguments} or {parameters}.
std::string write_call(const CallSyntax& syntax, std::string_view name, std::string_view arguments);
std::string write_parameter(const CallSyntax& syntax, std::string_view key, std::string_view value);

}  // namespace bl
