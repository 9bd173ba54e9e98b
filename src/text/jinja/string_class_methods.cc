// Methods of str that ask to which class its characters belong.

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/method_tables.h"
#include "text/jinja/python_text.h"
#include "text/jinja/runtime.h"

namespace bl::jinja {
namespace {

// Whether the text is not empty and every character belongs to the class.
template <class IsMember>
Value every(Runtime& rt, const Arguments& args, const IsMember& is_member) {
  const std::string_view text = args[0].str();
  rt.scan(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (!is_member(c.value)) return Value::boolean(false);
    i += c.size;
  }
  return Value::boolean(!text.empty());
}

Value str_isalpha(Runtime& rt, const Arguments& args) { return every(rt, args, is_python_alpha); }
Value str_isdecimal(Runtime& rt, const Arguments& args) {
  return every(rt, args, is_python_decimal);
}
Value str_isdigit(Runtime& rt, const Arguments& args) { return every(rt, args, is_python_digit); }
Value str_isnumeric(Runtime& rt, const Arguments& args) {
  return every(rt, args, is_python_numeric);
}
Value str_isspace(Runtime& rt, const Arguments& args) { return every(rt, args, is_python_space); }
Value str_isalnum(Runtime& rt, const Arguments& args) {
  return every(rt, args, [](char32_t c) {
    return is_python_alpha(c) || is_python_digit(c) || is_python_numeric(c);
  });
}
Value str_isascii(Runtime&, const Arguments& args) {
  return Value::boolean(is_ascii(args[0].str()));
}
Value str_isprintable(Runtime& rt, const Arguments& args) {
  return Value::boolean(args[0].size == 0 || every(rt, args, is_python_printable).integer != 0);
}

Value str_isidentifier(Runtime& rt, const Arguments& args) {
  const std::string_view text = args[0].str();
  if (text.empty()) return Value::boolean(false);
  const char32_t first = code_point_at(text, 0).value;
  if (first != '_' && !is_python_alpha(first)) return Value::boolean(false);
  return every(rt, args, [](char32_t c) { return is_python_word(c); });
}

// Whether there is a cased character, and all cased characters are of one case.
Value one_case(Runtime& rt, const Arguments& args, bool (*is_right)(char32_t)) {
  const std::string_view text = args[0].str();
  rt.scan(text.size());
  bool any = false;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (is_cased(c.value)) {
      if (!is_right(c.value)) return Value::boolean(false);
      any = true;
    }
    i += c.size;
  }
  return Value::boolean(any);
}
Value str_isupper(Runtime& rt, const Arguments& args) { return one_case(rt, args, is_upper_case); }
Value str_islower(Runtime& rt, const Arguments& args) { return one_case(rt, args, is_lower_case); }

Value str_istitle(Runtime& rt, const Arguments& args) {
  const std::string_view text = args[0].str();
  rt.scan(text.size());
  bool any = false;
  bool in_word = false;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    const bool capital = is_upper_case(c.value) || is_title_case(c.value);
    const bool small = is_lower_case(c.value);
    if ((capital && in_word) || (small && !in_word)) return Value::boolean(false);
    in_word = capital || small;
    any = any || in_word;
    i += c.size;
  }
  return Value::boolean(any);
}

constexpr Builtin kClassMethods[] = {
    {"isalpha", str_isalpha, 1, {"self"}},         {"isdigit", str_isdigit, 1, {"self"}},
    {"isnumeric", str_isnumeric, 1, {"self"}},     {"isdecimal", str_isdecimal, 1, {"self"}},
    {"isalnum", str_isalnum, 1, {"self"}},         {"isspace", str_isspace, 1, {"self"}},
    {"isupper", str_isupper, 1, {"self"}},         {"islower", str_islower, 1, {"self"}},
    {"istitle", str_istitle, 1, {"self"}},         {"isascii", str_isascii, 1, {"self"}},
    {"isprintable", str_isprintable, 1, {"self"}}, {"isidentifier", str_isidentifier, 1, {"self"}},
};

}  // namespace

std::span<const Builtin> string_class_methods() { return kClassMethods; }

}  // namespace bl::jinja
