// Methods of str that search in the text or take it apart.

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/iteration.h"
#include "text/jinja/method_tables.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

std::string_view need_text(Runtime& rt, const Value& value, const char* what) {
  if (value.is_undefined()) fail_undefined(rt, value);
  if (!value.is_string()) rt.fail("{} must be str, not {}", what, type_name(value));
  return value.str();
}

Value part_of(const Value& text, std::string_view part) {
  return Value::string(part).as_markup(text.is_markup());
}

// The part of the text that the optional arguments start and end select.
struct Window {
  std::string_view text;
  std::size_t begin = 0;  // number of code points before it
  bool exists = true;     // false if start is beyond the end
};

Window window(Runtime& rt, const Arguments& args) {
  const std::string_view text = args[0].str();
  rt.scan(text.size());
  if (!args.has_value(2) && !args.has_value(3)) return {text, 0, true};
  const auto length = static_cast<std::int64_t>(*length_of(args[0]));
  const auto place = [&](std::size_t i, std::int64_t otherwise) {
    if (!args.has_value(i)) return otherwise;
    const std::int64_t at = to_index(rt, args[i], "a slice index");
    return std::max<std::int64_t>(0, at < 0 ? at + length : at);
  };
  const std::int64_t begin = place(2, 0);
  const std::int64_t end = std::min(place(3, length), length);
  if (begin > end) return {{}, 0, false};
  return {code_points(text, static_cast<std::size_t>(begin), static_cast<std::size_t>(end)),
          static_cast<std::size_t>(begin), true};
}

std::int64_t find_index(Runtime& rt, const Arguments& args, bool last) {
  const std::string_view what = need_text(rt, args[1], "the text to find");
  const Window w = window(rt, args);
  if (!w.exists) return -1;
  const std::size_t at = last ? find_last_text(w.text, what) : find_text(w.text, what);
  if (at == std::string_view::npos) return -1;
  return static_cast<std::int64_t>(w.begin + count_code_points(w.text.substr(0, at)));
}

Value str_find(Runtime& rt, const Arguments& args) {
  return Value::of_int(find_index(rt, args, false));
}
Value str_rfind(Runtime& rt, const Arguments& args) {
  return Value::of_int(find_index(rt, args, true));
}
Value str_index(Runtime& rt, const Arguments& args) {
  const std::int64_t at = find_index(rt, args, false);
  if (at < 0) rt.fail("substring not found");
  return Value::of_int(at);
}
Value str_rindex(Runtime& rt, const Arguments& args) {
  const std::int64_t at = find_index(rt, args, true);
  if (at < 0) rt.fail("substring not found");
  return Value::of_int(at);
}

Value str_count(Runtime& rt, const Arguments& args) {
  const std::string_view what = need_text(rt, args[1], "the text to count");
  const Window w = window(rt, args);
  if (!w.exists) return Value::of_int(0);
  if (what.empty()) return Value::of_int(static_cast<std::int64_t>(count_code_points(w.text)) + 1);
  std::int64_t count = 0;
  for (std::size_t at = find_text(w.text, what); at != std::string_view::npos;
       at = find_text(w.text, what, at + what.size())) {
    ++count;
  }
  return Value::of_int(count);
}

Value matches(Runtime& rt, const Arguments& args, bool at_end) {
  const Window w = window(rt, args);
  const auto match = [&](const Value& value) {
    const std::string_view what = need_text(rt, value, "the prefix or suffix");
    return w.exists && (at_end ? w.text.ends_with(what) : w.text.starts_with(what));
  };
  if (!args[1].is(Kind::kTuple)) return Value::boolean(match(args[1]));
  const auto choices = args[1].list();
  return Value::boolean(std::any_of(choices.begin(), choices.end(), match));
}
Value str_startswith(Runtime& rt, const Arguments& args) { return matches(rt, args, false); }
Value str_endswith(Runtime& rt, const Arguments& args) { return matches(rt, args, true); }

std::int64_t split_limit(Runtime& rt, const Arguments& args) {
  const std::int64_t limit = args.has(2) ? to_index(rt, args[2], "maxsplit") : -1;
  return limit < 0 ? INT64_MAX : limit;
}

Value split_spaces(Runtime& rt, const Value& text, std::int64_t limit) {
  ValueVector parts = rt.vector();
  std::string_view rest = python_strip(text.str(), StripSide::kLeft);
  while (!rest.empty()) {
    rt.step();
    if (limit-- == 0) {
      parts.push_back(part_of(text, rest));
      break;
    }
    std::size_t end = 0;
    while (end < rest.size()) {
      const CodePoint c = code_point_at(rest, end);
      if (is_python_space(c.value)) break;
      end += c.size;
    }
    parts.push_back(part_of(text, rest.substr(0, end)));
    rest = python_strip(rest.substr(end), StripSide::kLeft);
  }
  return rt.list(Runtime::keep(parts));
}

Value rsplit_spaces(Runtime& rt, const Value& text, std::int64_t limit) {
  ValueVector parts = rt.vector();
  std::string_view rest = python_strip(text.str(), StripSide::kRight);
  while (!rest.empty()) {
    rt.step();
    if (limit-- == 0) {
      parts.push_back(part_of(text, rest));
      break;
    }
    std::size_t begin = rest.size();
    while (begin > 0) {
      const CodePoint c = code_point_before(rest, begin);
      if (is_python_space(c.value)) break;
      begin -= c.size;
    }
    parts.push_back(part_of(text, rest.substr(begin)));
    rest = python_strip(rest.substr(0, begin), StripSide::kRight);
  }
  std::reverse(parts.begin(), parts.end());
  return rt.list(Runtime::keep(parts));
}

std::string_view separator(Runtime& rt, const Value& value) {
  const std::string_view text = need_text(rt, value, "the separator");
  if (text.empty()) rt.fail("empty separator");
  return text;
}

Value str_split(Runtime& rt, const Arguments& args) {
  rt.scan(args[0].size);
  std::int64_t limit = split_limit(rt, args);
  if (!args.has_value(1)) return split_spaces(rt, args[0], limit);
  const std::string_view mark = separator(rt, args[1]);
  const std::string_view text = args[0].str();
  ValueVector parts = rt.vector();
  std::size_t begin = 0;
  while (limit-- > 0) {
    const std::size_t end = find_text(text, mark, begin);
    if (end == std::string_view::npos) break;
    rt.step();
    parts.push_back(part_of(args[0], text.substr(begin, end - begin)));
    begin = end + mark.size();
  }
  parts.push_back(part_of(args[0], text.substr(begin)));
  return rt.list(Runtime::keep(parts));
}

Value str_rsplit(Runtime& rt, const Arguments& args) {
  rt.scan(args[0].size);
  std::int64_t limit = split_limit(rt, args);
  if (!args.has_value(1)) return rsplit_spaces(rt, args[0], limit);
  const std::string_view mark = separator(rt, args[1]);
  std::string_view text = args[0].str();
  ValueVector parts = rt.vector();
  while (limit-- > 0) {
    const std::size_t at = text.rfind(mark);
    if (at == std::string_view::npos) break;
    // The scan counts what rfind does: it compares at every place that it passes.
    rt.scan((text.size() - at) * std::min<std::size_t>(mark.size(), 64));
    rt.step();
    parts.push_back(part_of(args[0], text.substr(at + mark.size())));
    text = text.substr(0, at);
  }
  parts.push_back(part_of(args[0], text));
  std::reverse(parts.begin(), parts.end());
  return rt.list(Runtime::keep(parts));
}

Value partition(Runtime& rt, const Arguments& args, bool last) {
  rt.scan(args[0].size);
  const std::string_view mark = separator(rt, args[1]);
  const std::string_view text = args[0].str();
  const std::size_t at = last ? find_last_text(text, mark) : find_text(text, mark);
  auto* parts = rt.arena.array<Value>(3);
  if (at == std::string_view::npos) {
    parts[0] = last ? part_of(args[0], {}) : args[0];
    parts[1] = part_of(args[0], {});
    parts[2] = last ? args[0] : part_of(args[0], {});
  } else {
    parts[0] = part_of(args[0], text.substr(0, at));
    parts[1] = part_of(args[0], text.substr(at, mark.size()));
    parts[2] = part_of(args[0], text.substr(at + mark.size()));
  }
  return rt.tuple({parts, 3});
}
Value str_partition(Runtime& rt, const Arguments& args) { return partition(rt, args, false); }
Value str_rpartition(Runtime& rt, const Arguments& args) { return partition(rt, args, true); }

Value str_splitlines(Runtime& rt, const Arguments& args) {
  const std::string_view text = args[0].str();
  rt.scan(text.size());
  const bool keep_ends = args.has(1) && truthy(args[1]);
  ValueVector lines = rt.vector();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = line_end_size(text, at);
    if (end == 0) {
      at += utf8_size(text[at]);
      continue;
    }
    rt.step();
    lines.push_back(part_of(args[0], text.substr(begin, at - begin + (keep_ends ? end : 0))));
    at += end;
    begin = at;
  }
  if (begin < text.size()) lines.push_back(part_of(args[0], text.substr(begin)));
  return rt.list(Runtime::keep(lines));
}

Value strip(Runtime& rt, const Arguments& args, StripSide side) {
  const std::string_view text = args[0].str();
  rt.scan(text.size());
  if (!args.has_value(1)) return part_of(args[0], python_strip(text, side));
  const std::string_view chars = need_text(rt, args[1], "the characters to strip");
  const std::string_view rest = python_strip(text, chars, side);
  rt.scan((text.size() - rest.size()) * chars.size());
  return part_of(args[0], rest);
}
Value str_strip(Runtime& rt, const Arguments& args) { return strip(rt, args, StripSide::kBoth); }
Value str_lstrip(Runtime& rt, const Arguments& args) { return strip(rt, args, StripSide::kLeft); }
Value str_rstrip(Runtime& rt, const Arguments& args) { return strip(rt, args, StripSide::kRight); }

Value str_removeprefix(Runtime& rt, const Arguments& args) {
  const std::string_view prefix = need_text(rt, args[1], "the prefix");
  std::string_view text = args[0].str();
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return part_of(args[0], text);
}
Value str_removesuffix(Runtime& rt, const Arguments& args) {
  const std::string_view suffix = need_text(rt, args[1], "the suffix");
  std::string_view text = args[0].str();
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return part_of(args[0], text);
}

constexpr Builtin kSearchMethods[] = {
    {"strip", str_strip, 1, {"self", "chars"}, kPositional},
    {"lstrip", str_lstrip, 1, {"self", "chars"}, kPositional},
    {"rstrip", str_rstrip, 1, {"self", "chars"}, kPositional},
    {"split", str_split, 1, {"self", "sep", "maxsplit"}},
    {"rsplit", str_rsplit, 1, {"self", "sep", "maxsplit"}},
    {"startswith", str_startswith, 2, {"self", "prefix", "start", "end"}, kPositional},
    {"endswith", str_endswith, 2, {"self", "suffix", "start", "end"}, kPositional},
    {"find", str_find, 2, {"self", "sub", "start", "end"}, kPositional},
    {"rfind", str_rfind, 2, {"self", "sub", "start", "end"}, kPositional},
    {"index", str_index, 2, {"self", "sub", "start", "end"}, kPositional},
    {"rindex", str_rindex, 2, {"self", "sub", "start", "end"}, kPositional},
    {"count", str_count, 2, {"self", "sub", "start", "end"}, kPositional},
    {"partition", str_partition, 2, {"self", "sep"}, kPositional},
    {"rpartition", str_rpartition, 2, {"self", "sep"}, kPositional},
    {"splitlines", str_splitlines, 1, {"self", "keepends"}},
    {"removeprefix", str_removeprefix, 2, {"self", "prefix"}, kPositional},
    {"removesuffix", str_removesuffix, 2, {"self", "suffix"}, kPositional},
};

}  // namespace

std::span<const Builtin> string_search_methods() { return kSearchMethods; }

}  // namespace bl::jinja
