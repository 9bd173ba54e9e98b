// Filters that turn text into other text.

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/iteration.h"
#include "text/jinja/method_tables.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_form.h"
#include "text/jinja/text_layout.h"

namespace bl::jinja {
namespace {

// Calls the method of str that is called `name` on soft_str(value).
Value call_method(Runtime& rt, const Value& value, std::string_view name,
                  std::span<const Value> positional = {}) {
  const Value text = soft_str(rt, value);
  return call_builtin(rt, *find_method(text, name), text, {positional, {}});
}

void need_string(Runtime& rt, const Value& value) {
  if (value.is_undefined()) fail_undefined(rt, value);
  if (!value.is_string()) rt.fail("this filter needs a str, not '{}'", type_name(value));
}

Value filter_upper(Runtime& rt, const Arguments& args) { return call_method(rt, args[0], "upper"); }
Value filter_lower(Runtime& rt, const Arguments& args) { return call_method(rt, args[0], "lower"); }
Value filter_capitalize(Runtime& rt, const Arguments& args) {
  return call_method(rt, args[0], "capitalize");
}
Value filter_trim(Runtime& rt, const Arguments& args) {
  return call_method(rt, args[0], "strip", std::span(&args[1], args.has(1) ? 1 : 0));
}
Value filter_center(Runtime& rt, const Arguments& args) {
  const Value width = args.has(1) ? args[1] : Value::of_int(80);
  return call_method(rt, args[0], "center", std::span(&width, 1));
}
Value filter_string(Runtime& rt, const Arguments& args) { return soft_str(rt, args[0]); }

// replace(s, old, new, count=None)
Value filter_replace(Runtime& rt, const Arguments& args) {
  const Value parts[] = {str_of(rt, args[1]), str_of(rt, args[2]),
                         args.has_value(3) ? args[3] : Value::of_int(-1)};
  return call_method(rt, str_of(rt, args[0]), "replace", parts);
}

bool begins_word(char c) { return c == '-' || c == '(' || c == '{' || c == '[' || c == '<'; }

Value filter_title(Runtime& rt, const Arguments& args) {
  const Value value = soft_str(rt, args[0]);
  const std::string_view text = value.str();
  rt.step(text.size() / 16);
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    // In each run of word openers, and in each run of anything else, the first character is raised.
    const auto is_opener = [&](std::size_t i) {
      return begins_word(text[i]) || is_python_space(code_point_at(text, i).value);
    };
    const bool opener = is_opener(begin);
    std::size_t end = begin;
    while (end < text.size() && is_opener(end) == opener) end += utf8_size(text[end]);
    const std::size_t first = utf8_size(text[begin]);
    out += to_upper(text.substr(begin, first));
    out += to_lower(text.substr(begin + first, end - begin - first));
    begin = end;
  }
  return rt.string(out);
}

Value filter_wordcount(Runtime& rt, const Arguments& args) {
  const Value value = soft_str(rt, args[0]);
  rt.step(value.size / 16);
  std::int64_t words = 0;
  bool in_word = false;
  for (std::size_t i = 0; i < value.size;) {
    const CodePoint c = code_point_at(value.str(), i);
    const bool is_word = is_python_word(c.value);
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
    i += c.size;
  }
  return Value::of_int(words);
}

// truncate(s, length=255, killwords=False, end="...", leeway=5)
Value filter_truncate(Runtime& rt, const Arguments& args) {
  const std::int64_t length = args.has(1) ? to_index(rt, args[1], "length") : 255;
  const Value end = args.has(3) ? args[3] : Value::string("...");
  need_string(rt, end);
  const std::int64_t leeway = args.has_value(4) ? to_index(rt, args[4], "leeway") : 5;
  const auto end_length = static_cast<std::int64_t>(*length_of(end));
  if (length < end_length) rt.fail("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) rt.fail("expected leeway >= 0, got {}", leeway);
  if (args[0].is_string()) rt.scan(args[0].size);
  const auto full = length_of(args[0]);
  if (!full) rt.fail("object of type '{}' has no len()", type_name(args[0]));
  const auto full_length = static_cast<std::int64_t>(*full);
  if (full_length <= length || full_length - length <= leeway) return args[0];
  need_string(rt, args[0]);
  const std::string_view text = args[0].str();
  std::string_view kept = code_points(text, 0, static_cast<std::size_t>(length - end_length));
  if (!(args.has(2) && truthy(args[2]))) {
    kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  }
  return binary(rt, BinaryOp::kAdd, Value::string(kept).as_markup(args[0].is_markup()), end);
}

// indent(s, width=4, first=False, blank=False)
Value filter_indent(Runtime& rt, const Arguments& args) {
  need_string(rt, args[0]);
  std::string indent(4, ' ');
  if (args.has(1) && args[1].is_string()) {
    indent = args[1].str();
  } else if (args.has(1)) {
    const std::int64_t width = std::max<std::int64_t>(0, to_index(rt, args[1], "width"));
    rt.check_size(static_cast<std::size_t>(width));
    indent.assign(static_cast<std::size_t>(width), ' ');
  }
  const bool blank = args.has(3) && truthy(args[3]);
  const Value text = rt.concat(args[0], "\n");
  const Value lines = call_method(rt, text, "splitlines");
  std::string out;
  if (args.has(2) && truthy(args[2])) out += indent;
  for (std::size_t i = 0; i < lines.size; ++i) {
    const std::string_view line = lines.items[i].str();
    if (i > 0) {
      out += "\n";
      if (blank || !line.empty()) out += indent;
    }
    out += line;
    rt.check_size(out.size());
  }
  return rt.string(out).as_markup(args[0].is_markup());
}

// format(value, *args) or format(value, **keywords): value % args
Value filter_format(Runtime& rt, const Arguments& args) {
  const Value text = soft_str(rt, args[0]);
  if (args.rest.keywords.empty()) {
    return binary(rt, BinaryOp::kMod, text, rt.tuple(rt.copy(args.rest.positional)));
  }
  if (!args.rest.positional.empty()) {
    rt.fail("can't handle positional and keyword arguments at the same time");
  }
  return binary(rt, BinaryOp::kMod, text, keywords_as_dict(rt, args.rest.keywords));
}

// tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False): the parameters
// are those of json.dumps.
Value filter_tojson(Runtime& rt, const Arguments& args) {
  JsonStyle style;
  style.ensure_ascii = args.has(1) && truthy(args[1]);
  style.sort_keys = args.has(4) && truthy(args[4]);
  if (args.has_value(2)) {
    style.item_separator.assign(1, ',');
    if (args[2].is_string()) {
      style.indent = args[2].str();
    } else {
      const std::int64_t width = std::max<std::int64_t>(0, to_index(rt, args[2], "indent"));
      rt.check_size(static_cast<std::size_t>(width));
      style.indent = std::string(static_cast<std::size_t>(width), ' ');
    }
  }
  if (args.has_value(3)) {
    const auto parts = items_of(rt, args[3]);
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) {
      rt.fail("separators must be two strings: between items, after keys");
    }
    style.item_separator = parts[0].str();
    style.key_separator = parts[1].str();
  }
  std::string out;
  append_json(rt, args[0], style, out);
  return rt.string(out);
}

Value filter_pprint(Runtime& rt, const Arguments& args) {
  std::string out;
  append_pretty(rt, args[0], out);
  return rt.string(out);
}

// wordwrap(s, width=79, break_long_words=True, wrapstring=None, break_on_hyphens=True)
Value filter_wordwrap(Runtime& rt, const Arguments& args) {
  need_string(rt, args[0]);
  WrapStyle style;
  style.width = args.has(1) ? to_index(rt, args[1], "width") : 79;
  style.break_long_words = !args.has(2) || truthy(args[2]);
  style.break_on_hyphens = !args.has(4) || truthy(args[4]);
  if (style.width <= 0) rt.fail("invalid width {} (must be > 0)", style.width);
  const Value joint = args.has_value(3) ? args[3] : Value::string("\n");
  need_string(rt, joint);
  std::string out;
  const Value lines = call_method(rt, args[0], "splitlines");
  for (std::size_t i = 0; i < lines.size; ++i) {
    if (i > 0) out += joint.str();
    bool first = true;
    for (const std::string& part : wrap_line(rt, lines.items[i].str(), style)) {
      if (!first) out += joint.str();
      first = false;
      out += part;
      rt.check_size(out.size());
    }
  }
  return rt.string(out);
}

constexpr Builtin kTextFilters[] = {
    {"tojson", filter_tojson, 1, {"x", "ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", filter_trim, 1, {"value", "chars"}},
    {"string", filter_string, 1, {"s"}},
    {"upper", filter_upper, 1, {"s"}},
    {"lower", filter_lower, 1, {"s"}},
    {"capitalize", filter_capitalize, 1, {"s"}},
    {"title", filter_title, 1, {"s"}},
    {"replace", filter_replace, 3, {"s", "old", "new", "count"}},
    {"indent", filter_indent, 1, {"s", "width", "first", "blank"}},
    {"format", filter_format, 1, {"value"}, Builtin::Style::kVariadic},
    {"truncate", filter_truncate, 1, {"s", "length", "killwords", "end", "leeway"}},
    {"center", filter_center, 1, {"value", "width"}},
    {"wordcount", filter_wordcount, 1, {"s"}},
    {"wordwrap",
     filter_wordwrap,
     1,
     {"s", "width", "break_long_words", "wrapstring", "break_on_hyphens"}},
    {"pprint", filter_pprint, 1, {"value"}},
};

}  // namespace

std::span<const Builtin> text_filters() { return kTextFilters; }

}  // namespace bl::jinja
