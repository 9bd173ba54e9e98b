#include "base/utf8.h"
#include "text/jinja/format.h"
#include "text/jinja/number.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const CallArgs& args, bool markup)
      : rt_(rt), args_(args), markup_(markup) {}

  // A spec may contain fields; these may not contain further ones. `levels` is how many are left.
  std::string run(std::string_view text, int levels) {
    if (levels < 0) rt_.fail("Max string recursion exceeded");
    rt_.scan(text.size());
    std::string out;
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t mark = text.find_first_of("{}", at);
      out += text.substr(at, mark - at);
      if (mark == std::string_view::npos) break;
      const char brace = text[mark];
      if (mark + 1 < text.size() && text[mark + 1] == brace) {
        out.push_back(brace);
        at = mark + 2;
        continue;
      }
      if (brace == '}') rt_.fail("Single '}}' encountered in format string");
      const std::size_t end = field_end(text, mark + 1);
      out += field(text.substr(mark + 1, end - mark - 1), levels);
      rt_.check_size(out.size());
      rt_.step();
      at = end + 1;
    }
    return out;
  }

 private:
  std::size_t field_end(std::string_view text, std::size_t from) {
    int open = 1;
    bool in_brackets = false;  // braces inside [...] of the field's name belong to the name
    bool in_name = true;
    for (std::size_t i = from; i < text.size(); ++i) {
      const char c = text[i];
      if (in_name && c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (in_brackets) continue;
      if (c == ':' || c == '!') in_name = false;
      if (c == '{') ++open;
      if (c == '}' && --open == 0) return i;
    }
    rt_.fail("expected '}}' before end of string");
  }

  std::string field(std::string_view text, int levels) {
    const std::size_t name_end = find_name_end(text);
    const std::string_view name = text.substr(0, name_end);
    std::string_view rest = text.substr(name_end);
    char conversion = '\0';
    if (rest.starts_with('!')) {
      if (rest.size() < 2) rt_.fail("unmatched '{{' in format spec");
      conversion = rest[1];
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') rt_.fail("expected ':' after conversion specifier");
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    Value value = lookup(name);
    switch (conversion) {
      case '\0':
        break;
      case 's':
        value = str_of(rt_, value);
        break;
      case 'r':
      case 'a':
        value = repr_of(rt_, value);
        break;
      default:
        rt_.fail("Unknown conversion specifier {}", conversion);
    }
    std::string shown = format_value(rt_, value, run(rest, levels - 1));
    if (!markup_ || value.is_markup()) return shown;
    std::string escaped;
    append_escaped(shown, escaped);
    return escaped;
  }

  static std::size_t find_name_end(std::string_view text) {
    bool in_brackets = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '[') in_brackets = true;
      if (text[i] == ']') in_brackets = false;
      if (!in_brackets && (text[i] == '!' || text[i] == ':')) return i;
    }
    return text.size();
  }

  Value first_value(std::string_view name) {
    if (name.empty() || all_digits(name)) {
      const bool automatic = name.empty();
      if (automatic ? manual_ : next_ > 0) {
        rt_.fail("cannot switch between manual and automatic field numbering");
      }
      std::size_t index = next_;
      if (automatic) {
        ++next_;
      } else {
        manual_ = true;
        if (name.size() > 9) rt_.fail("Too many decimal digits in format string");
        index = 0;
        for (const char c : name) index = index * 10 + static_cast<std::size_t>(c - '0');
      }
      if (index >= args_.positional.size()) {
        rt_.fail("Replacement index {} out of range for positional args tuple", index);
      }
      return args_.positional[index];
    }
    for (const Keyword& keyword : args_.keywords) {
      if (keyword.name == name) return keyword.value;
    }
    rt_.fail("'{}'", name);
  }

  Value lookup(std::string_view name) {
    const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = first_value(name.substr(0, first_end));
    std::string_view rest = name.substr(first_end);
    while (!rest.empty()) {
      rt_.step();
      if (rest[0] == '.') {
        const std::size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        if (end == 1) rt_.fail("Empty attribute in format string");
        value = get_attribute(rt_, value, rt_.arena.copy(rest.substr(1, end - 1)));
        rest.remove_prefix(end);
      } else {
        const std::size_t end = rest.find(']');
        if (rest[0] != '[' || end == std::string_view::npos) {
          rt_.fail("Missing ']' in format string");
        }
        if (end == 1) rt_.fail("Empty attribute in format string");
        const std::string_view key = rest.substr(1, end - 1);
        const bool number = all_digits(key) && key.size() < 18;
        value = get_item(rt_, value,
                         number ? *parse_int(rt_, key, 10) : Value::string(rt_.arena.copy(key)));
        rest.remove_prefix(end + 1);
        if (!rest.empty() && rest[0] != '.' && rest[0] != '[') {
          rt_.fail("Only '.' or '[' may follow ']' in format field specifier");
        }
      }
    }
    return value;
  }

  Runtime& rt_;
  const CallArgs& args_;
  bool markup_;
  std::size_t next_ = 0;
  bool manual_ = false;
};

}  // namespace

Value format_braces(Runtime& rt, const Value& text, const CallArgs& args) {
  const std::string out = BraceFormatter(rt, args, text.is_markup()).run(text.str(), 2);
  return rt.string(out).as_markup(text.is_markup());
}

}  // namespace bl::jinja
