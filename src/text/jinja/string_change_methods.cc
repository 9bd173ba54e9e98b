// Methods of str that make another text.

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/dict.h"
#include "text/jinja/format.h"
#include "text/jinja/iteration.h"
#include "text/jinja/method_tables.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

Value result(Runtime& rt, const Arguments& args, const std::string& text) {
  return rt.string(text).as_markup(args[0].is_markup());
}

Value change_case(Runtime& rt, const Arguments& args, std::string (*change)(std::string_view)) {
  rt.step(args[0].size / 16);
  return result(rt, args, change(args[0].str()));
}
Value str_upper(Runtime& rt, const Arguments& args) { return change_case(rt, args, to_upper); }
Value str_lower(Runtime& rt, const Arguments& args) { return change_case(rt, args, to_lower); }
Value str_title(Runtime& rt, const Arguments& args) { return change_case(rt, args, to_title); }
Value str_capitalize(Runtime& rt, const Arguments& args) {
  return change_case(rt, args, to_capitalized);
}
Value str_swapcase(Runtime& rt, const Arguments& args) {
  return change_case(rt, args, to_swapped_case);
}
Value str_casefold(Runtime& rt, const Arguments& args) {
  return change_case(rt, args, to_folded_case);
}

// Returns an argument that becomes part of the text: a str, escaped if the text is markup.
Value partner(Runtime& rt, const Arguments& args, std::size_t i) {
  if (args[i].is_undefined()) fail_undefined(rt, args[i]);
  if (!args[i].is_string()) {
    rt.fail("argument {} must be str, not {}", i, type_name(args[i]));
  }
  return args[0].is_markup() ? escape_html(rt, args[i]) : args[i];
}

// replace("", with): puts `with` before every character and at the end, at most `limit` times.
Value replace_between_all(Runtime& rt, const Arguments& args, std::string_view with,
                          std::int64_t limit) {
  std::string out;
  const std::string_view text = args[0].str();
  rt.check_size(text.size() + (text.size() + 1) * with.size());
  for (std::size_t at = 0;; at += utf8_size(text[at])) {
    if (limit-- > 0) out += with;
    if (at == text.size()) break;
    out += text.substr(at, utf8_size(text[at]));
  }
  return result(rt, args, out);
}

Value str_replace(Runtime& rt, const Arguments& args) {
  const Value what = partner(rt, args, 1);
  const Value with = partner(rt, args, 2);
  std::int64_t limit = args.has(3) ? to_index(rt, args[3], "count") : -1;
  if (limit < 0) limit = INT64_MAX;
  const std::string_view text = args[0].str();
  rt.scan(text.size());
  if (what.size == 0) return replace_between_all(rt, args, with.str(), limit);
  std::size_t found = find_text(text, what.str());
  if (found == std::string_view::npos || limit == 0) return args[0];
  std::string out;
  std::size_t begin = 0;
  while (found != std::string_view::npos && limit-- > 0) {
    out += text.substr(begin, found - begin);
    out += with.str();
    rt.check_size(out.size());
    begin = found + what.size;
    found = find_text(text, what.str(), begin);
  }
  out += text.substr(begin);
  rt.scan(out.size());
  return result(rt, args, out);
}

Value str_join(Runtime& rt, const Arguments& args) {
  const bool markup = args[0].is_markup();
  std::string out;
  Cursor cursor(rt, args[1]);
  std::size_t index = 0;
  for (Value item; cursor.next(item); ++index) {
    if (index > 0) out += args[0].str();
    if (item.is_undefined() || (!markup && !item.is_string())) {
      rt.fail("sequence item {}: expected str instance, {} found", index, type_name(item));
    }
    out += markup ? escape_html(rt, item).str() : item.str();
    rt.check_size(out.size());
  }
  rt.scan(out.size());
  return result(rt, args, out);
}

Value str_format(Runtime& rt, const Arguments& args) {
  return format_braces(rt, args[0], args.rest);
}

Value str_format_map(Runtime& rt, const Arguments& args) {
  if (!args[1].is(Kind::kDict)) rt.fail("format_map() needs a mapping");
  std::vector<Keyword> keywords;
  for (const DictEntry& entry : args[1].dict->list()) {
    if (entry.key.is_string()) keywords.push_back({entry.key.str(), entry.value});
  }
  return format_braces(rt, args[0], {{}, keywords});
}

struct Padding {
  std::size_t length = 0;
  std::size_t missing = 0;
  std::string_view fill = " ";
};

Padding padding(Runtime& rt, const Arguments& args) {
  Padding pad;
  rt.scan(args[0].size);
  pad.length = *length_of(args[0]);
  const std::int64_t width = to_index(rt, args[1], "the width");
  if (args.has(2)) {
    if (!args[2].is_string() || length_of(args[2]) != 1) {
      rt.fail("The fill character must be exactly one character long");
    }
    pad.fill = args[2].str();
  }
  if (width > static_cast<std::int64_t>(pad.length)) {
    rt.check_size(static_cast<std::size_t>(width));
    pad.missing = static_cast<std::size_t>(width) - pad.length;
  }
  rt.scan(pad.missing);
  return pad;
}

Value padded(Runtime& rt, const Arguments& args, const Padding& pad, std::size_t before) {
  std::string out;
  for (std::size_t i = 0; i < before; ++i) out += pad.fill;
  out += args[0].str();
  for (std::size_t i = before; i < pad.missing; ++i) out += pad.fill;
  return result(rt, args, out);
}

Value str_ljust(Runtime& rt, const Arguments& args) {
  return padded(rt, args, padding(rt, args), 0);
}
Value str_rjust(Runtime& rt, const Arguments& args) {
  const Padding pad = padding(rt, args);
  return padded(rt, args, pad, pad.missing);
}
Value str_center(Runtime& rt, const Arguments& args) {
  const Padding pad = padding(rt, args);
  // If the padding and the width are both odd, the extra character goes to the left, as in CPython.
  const std::size_t width = pad.length + pad.missing;
  return padded(rt, args, pad, pad.missing / 2 + (pad.missing & width & 1));
}

Value str_zfill(Runtime& rt, const Arguments& args) {
  const Padding pad = padding(rt, args);
  std::string out(args[0].str());
  const bool sign = !out.empty() && (out[0] == '+' || out[0] == '-');
  out.insert(sign ? 1 : 0, pad.missing, '0');
  return result(rt, args, out);
}

Value str_expandtabs(Runtime& rt, const Arguments& args) {
  const std::int64_t size = args.has(1) ? to_index(rt, args[1], "tabsize") : 8;
  const std::string_view text = args[0].str();
  rt.scan(text.size());
  std::string out;
  std::int64_t column = 0;
  for (std::size_t i = 0; i < text.size(); i += utf8_size(text[i])) {
    if (text[i] == '\t') {
      const std::int64_t gap = size > 0 ? size - column % size : 0;
      rt.check_size(out.size() + static_cast<std::size_t>(gap));
      out.append(static_cast<std::size_t>(gap), ' ');
      column += gap;
      continue;
    }
    out += text.substr(i, utf8_size(text[i]));
    column = text[i] == '\n' || text[i] == '\r' ? 0 : column + 1;
  }
  rt.scan(out.size());
  return result(rt, args, out);
}

constexpr Builtin kChangeMethods[] = {
    {"replace", str_replace, 3, {"self", "old", "new", "count"}, kPositional},
    {"upper", str_upper, 1, {"self"}},
    {"lower", str_lower, 1, {"self"}},
    {"title", str_title, 1, {"self"}},
    {"capitalize", str_capitalize, 1, {"self"}},
    {"join", str_join, 2, {"self", "iterable"}, kPositional},
    {"format", str_format, 1, {"self"}, Builtin::Style::kVariadic},
    {"format_map", str_format_map, 2, {"self", "mapping"}, kPositional},
    {"swapcase", str_swapcase, 1, {"self"}},
    {"casefold", str_casefold, 1, {"self"}},
    {"ljust", str_ljust, 2, {"self", "width", "fillchar"}, kPositional},
    {"rjust", str_rjust, 2, {"self", "width", "fillchar"}, kPositional},
    {"center", str_center, 2, {"self", "width", "fillchar"}, kPositional},
    {"zfill", str_zfill, 2, {"self", "width"}, kPositional},
    {"expandtabs", str_expandtabs, 1, {"self", "tabsize"}},
};

}  // namespace

std::span<const Builtin> string_change_methods() { return kChangeMethods; }

}  // namespace bl::jinja
