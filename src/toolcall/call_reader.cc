#include "toolcall/call_reader.h"

#include <algorithm>

#include "base/check.h"

namespace bl {

CallName call_name(const AnswerFormat& format, std::string_view name, std::string_view id) {
  CallName result{std::string(name), std::string(id)};
  if (format.name_ends_in_index) {
    const std::size_t colon = name.rfind(':');
    const auto is_digit = [](char byte) { return byte >= '0' && byte <= '9'; };
    if (colon != name.npos && colon + 1 < name.size() &&
        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(colon) + 1, name.end(), is_digit)) {
      if (id.empty()) result.id = name;
      result.name.resize(colon);
    }
  }
  if (!format.name_prefix.empty() && result.name.starts_with(format.name_prefix)) {
    result.name.erase(0, format.name_prefix.size());
  }
  return result;
}

std::unique_ptr<CallReader> make_call_reader(const CallReaderArgs& args) {
  switch (args.head.pattern().form()) {
    case CallForm::kObject:
      return make_object_reader(args);
    case CallForm::kArguments:
      return make_arguments_reader(args);
    case CallForm::kParameters:
      return make_parameters_reader(args);
    case CallForm::kElements:
      return make_elements_reader(args);
    case CallForm::kPython:
      return make_python_reader(args);
    case CallForm::kBraces:
      return make_braces_reader(args);
    case CallForm::kNone:
      break;
  }
  BL_CHECK(false);
  return nullptr;
}

}  // namespace bl
