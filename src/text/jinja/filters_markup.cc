// Filters for HTML and URLs.

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "text/jinja/dict.h"
#include "text/jinja/iteration.h"
#include "text/jinja/method_tables.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

Value filter_escape(Runtime& rt, const Arguments& args) { return escape_html(rt, args[0]); }
Value filter_forceescape(Runtime& rt, const Arguments& args) {
  return escape_html(rt, str_of(rt, args[0]));
}
Value filter_safe(Runtime& rt, const Arguments& args) {
  return str_of(rt, args[0]).as_markup(true);
}

// Removes every `open` … `close`. An `open` without a `close` stays.
std::string without(std::string_view text, std::string_view open, std::string_view close) {
  std::string out;
  std::size_t at = 0;
  for (;;) {
    const std::size_t begin = text.find(open, at);
    const std::size_t end =
        begin == std::string_view::npos ? begin : text.find(close, begin + open.size());
    if (end == std::string_view::npos) return out + std::string(text.substr(at));
    out += text.substr(at, begin - at);
    at = end + close.size();
  }
}

struct Entity {
  std::string_view name;
  char32_t value;
};
constexpr std::array kEntities = {
    Entity{"amp", '&'},      Entity{"lt", '<'},       Entity{"gt", '>'},
    Entity{"quot", '"'},     Entity{"apos", '\''},    Entity{"nbsp", 0xa0},
    Entity{"copy", 0xa9},    Entity{"reg", 0xae},     Entity{"hellip", 0x2026},
    Entity{"ndash", 0x2013}, Entity{"mdash", 0x2014}, Entity{"lsquo", 0x2018},
    Entity{"rsquo", 0x2019}, Entity{"ldquo", 0x201c}, Entity{"rdquo", 0x201d},
    Entity{"euro", 0x20ac},
};

// Returns the character of `&name;` or `&#39;`, given without & and ;. Returns 0 if there is none.
char32_t entity_value(std::string_view name) {
  if (name.starts_with('#')) {
    const bool hex = name.size() > 1 && (name[1] | 0x20) == 'x';
    std::uint32_t value = 0;
    for (const char c : name.substr(hex ? 2 : 1)) {
      const char lower = static_cast<char>(c | 0x20);
      const bool digit = c >= '0' && c <= '9';
      if (!digit && !(hex && lower >= 'a' && lower <= 'f')) return 0;
      value =
          value * (hex ? 16 : 10) + static_cast<std::uint32_t>(digit ? c - '0' : lower - 'a' + 10);
      if (value > 0x10ffff) return 0;
    }
    return value >= 0xd800 && value < 0xe000 ? 0 : value;
  }
  const auto* found = std::find_if(kEntities.begin(), kEntities.end(),
                                   [name](const Entity& e) { return e.name == name; });
  return found == kEntities.end() ? 0 : found->value;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = text.find('&', at);
    out += text.substr(at, mark - at);
    if (mark == std::string_view::npos) break;
    const std::size_t end = text.substr(mark, 12).find(';');
    const char32_t value =
        end == std::string_view::npos ? 0 : entity_value(text.substr(mark + 1, end - 1));
    if (value == 0) {
      out.push_back('&');
      at = mark + 1;
    } else {
      append_utf8(value, out);
      at = mark + end + 1;
    }
  }
  return out;
}

Value filter_striptags(Runtime& rt, const Arguments& args) {
  const Value text = str_of(rt, args[0]);
  rt.step(text.size / 16);
  const std::string plain = without(without(text.str(), "<!--", "-->"), "<", ">");
  // Each run of white space becomes one space, and none is left at the ends.
  std::string out;
  std::string_view rest = python_strip(plain, StripSide::kLeft);
  while (!rest.empty()) {
    std::size_t end = 0;
    while (end < rest.size() && !is_python_space(code_point_at(rest, end).value)) {
      end += utf8_size(rest[end]);
    }
    if (!out.empty()) out.push_back(' ');
    out += rest.substr(0, end);
    rest = python_strip(rest.substr(end), StripSide::kLeft);
  }
  return rt.string(unescaped(out));
}

// xmlattr(d, autospace=True)
Value filter_xmlattr(Runtime& rt, const Arguments& args) {
  if (args[0].is_undefined()) fail_undefined(rt, args[0]);
  if (!args[0].is(Kind::kDict)) rt.fail("'{}' has no items", type_name(args[0]));
  std::string out;
  const bool space = !args.has(1) || truthy(args[1]);
  for (const DictEntry& entry : args[0].dict->list()) {
    rt.step();
    if (entry.value.is_none() || entry.value.is_undefined()) continue;
    if (!entry.key.is_string()) rt.fail("attribute names must be str");
    if (entry.key.str().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      rt.fail("Invalid character in attribute name: '{}'", entry.key.str());
    }
    if (!out.empty() || space) out.push_back(' ');
    out += escape_html(rt, entry.key).str();
    out += "=\"";
    out += escape_html(rt, entry.value).str();
    out += "\"";
    rt.check_size(out.size());
  }
  return rt.string(out).as_markup(rt.autoescape);
}

void append_quoted_url(Runtime& rt, const Value& value, bool in_query, std::string& out) {
  const Value text = str_of(rt, value);
  rt.step(text.size / 16);
  for (const char c : text.str()) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !in_query)) {
      out.push_back(c);
    } else if (c == ' ' && in_query) {
      out.push_back('+');
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
}

Value filter_urlencode(Runtime& rt, const Arguments& args) {
  const Value& value = args[0];
  std::string out;
  if (value.is_string() || !is_iterable(value)) {
    append_quoted_url(rt, value, false, out);
    return rt.string(out);
  }
  const auto pairs =
      value.is(Kind::kDict) ? view_items(rt, {value, DictView::Part::kItems}) : items_of(rt, value);
  for (const Value& pair : pairs) {
    const auto parts = items_of(rt, pair);
    if (parts.size() != 2) rt.fail("urlencode needs pairs of name and value");
    if (!out.empty()) out.push_back('&');
    append_quoted_url(rt, parts[0], true, out);
    out.push_back('=');
    append_quoted_url(rt, parts[1], true, out);
    rt.check_size(out.size());
  }
  return rt.string(out);
}

constexpr Builtin kMarkupFilters[] = {
    {"safe", filter_safe, 1, {"value"}},
    {"escape", filter_escape, 1, {"s"}},
    {"e", filter_escape, 1, {"s"}},
    {"forceescape", filter_forceescape, 1, {"value"}},
    {"striptags", filter_striptags, 1, {"value"}},
    {"xmlattr", filter_xmlattr, 1, {"d", "autospace"}},
    {"urlencode", filter_urlencode, 1, {"value"}},
};

}  // namespace

std::span<const Builtin> markup_filters() { return kMarkupFilters; }

}  // namespace bl::jinja
