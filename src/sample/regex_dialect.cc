#include "sample/regex_dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sample/grammar_hooks.h"

namespace bl {

namespace {

// Returns the offset after the element at `at`: a character class, an escape or a single
// character.
std::size_t end_of_sign(std::string_view regex, std::size_t at) {
  if (regex[at] == '\\') return std::min(at + 2, regex.size());
  return regex[at] == '[' ? behind_closing(regex, at, ']') : at + 1;
}

// Looks for an anchor that can never match when the whole text is matched, because something stands
// on the wrong side of it.
class AnchorSearch {
 public:
  explicit AnchorSearch(std::string_view regex) : regex_(regex) {}

  // Returns the offset of a misplaced anchor, or npos.
  std::size_t run() {
    for (std::size_t next = 0; at_ < regex_.size() && found_ == kNone; at_ = next) {
      next = end_of_sign(regex_, at_);
      visit(next);
    }
    return found_;
  }

 private:
  static constexpr std::size_t kNone = std::string_view::npos;

  // A group, or the whole expression.
  struct Group {
    bool first = true;           // nothing precedes the group
    bool begun = false;          // the current alternative has content
    std::size_t caret = kNone;   // offset of the first ^ in any alternative
    std::size_t ended = kNone;   // offset of the $ in the current alternative
    std::size_t dollar = kNone;  // offset of the first $ in earlier alternatives
  };

  void visit(std::size_t& next) {
    Group& group = groups_.back();
    const char sign = regex_[at_];
    if (sign == '|') {
      group.dollar = std::min(group.dollar, std::exchange(group.ended, kNone));
      group.begun = false;
    } else if (sign == ')' && groups_.size() > 1) {
      leave(next);
    } else if (sign == '$') {
      if (is_doubled()) found_ = at_;
      group.ended = std::min(group.ended, at_);
    } else if (group.ended != kNone) {
      found_ = group.ended;
    } else if (sign == '^') {
      if (is_doubled() || !group.first || group.begun) found_ = at_;
      group.caret = std::min(group.caret, at_);
    } else if (sign == '(') {
      groups_.push_back({.first = group.first && !group.begun});
      next = behind_modifier(next);
    } else {
      group.begun = true;
    }
  }

  // `^^` would match, but is surely a mistake.
  bool is_doubled() {
    const bool behind_one = std::exchange(behind_anchor_, at_ + 1) == at_;
    return behind_one && at_ > 0 && regex_[at_ - 1] == regex_[at_];
  }

  // Skips `?:` and `?<name>`. Other modifiers are left to the library, which refuses them.
  std::size_t behind_modifier(std::size_t at) const {
    if (regex_.substr(at, 2) == "?:") return at + 2;
    if (regex_.substr(at, 2) != "?<") return at;
    const std::size_t end = regex_.find('>', at);
    return end == regex_.npos ? at : end + 1;
  }

  // A repeated group follows itself, so anchors inside it are misplaced. `?` alone does not repeat.
  void leave(std::size_t& next) {
    const Group inner = groups_.back();
    groups_.pop_back();
    Group& group = groups_.back();
    const std::size_t dollar = std::min(inner.ended, inner.dollar);
    const char behind = next < regex_.size() ? regex_[next] : '|';
    const bool repeats = behind == '*' || behind == '+' || behind == '{';
    for (int i = 0; i < 2 && next < regex_.size() && regex_[next] == '?'; ++i) ++next;
    if (group.ended != kNone) found_ = group.ended;
    if (repeats) found_ = std::min({found_, inner.caret, dollar});
    group.begun = true;
    group.caret = std::min(group.caret, inner.caret);
    group.ended = dollar;
  }

  std::string_view regex_;
  std::vector<Group> groups_{1};
  std::size_t at_ = 0;
  std::size_t behind_anchor_ = 0;  // where the last anchor ends
  std::size_t found_ = kNone;
};

// Whether the expression has alternatives outside of all groups.
bool has_alternatives(std::string_view regex) {
  int depth = 0;
  for (std::size_t at = 0; at < regex.size(); at = end_of_sign(regex, at)) {
    if (regex[at] == '(') ++depth;
    if (regex[at] == ')') --depth;
    if (regex[at] == '|' && depth == 0) return true;
  }
  return false;
}

// An escape of the form \uXXXX or \u{X…}. Only these can denote something that is no character;
// malformed ones are left to the library, which refuses them.
struct UnicodeEscape {
  std::size_t size = 0;  // length of the escape; 0 if there is none
  std::uint32_t code = 0;
};

UnicodeEscape unicode_escape_at(const std::string& regex, std::size_t at) {
  if (regex.compare(at, 2, "\\u") != 0) return {};
  const bool braces = regex.compare(at + 2, 1, "{") == 0;
  const char* const begin = regex.data() + at + (braces ? 3 : 2);
  const char* const last = regex.data() + regex.size();
  const char* const most = begin + std::min<std::ptrdiff_t>(braces ? 8 : 4, last - begin);
  std::uint32_t code = 0;
  const auto [end, error] = std::from_chars(begin, most, code, 16);
  if (error != std::errc()) return {};
  if (braces) {
    if (end == last || *end != '}') return {};
    return {static_cast<std::size_t>(end - regex.data()) - at + 1, code};
  }
  if (end - begin != 4) return {};
  return {6 + static_cast<std::size_t>(join_surrogates(end, code)), code};
}

}  // namespace

std::string regex_fault(std::string_view regex) {
  if (const std::size_t at = AnchorSearch(regex).run(); at != regex.npos) {
    return fmt::format(
        "has {} at offset {}, where it can never match: the whole text must match the expression",
        regex[at], at);
  }
  const std::string text(regex);  // zero-terminated
  for (std::size_t i = text.find('\\'); i != text.npos; i = text.find('\\', i)) {
    const UnicodeEscape escape = unicode_escape_at(text, i);
    if (escape.size > 0 && !is_character(escape.code)) {
      return fmt::format("has {} at offset {}, which is not a Unicode character",
                         text.substr(i, escape.size), i);
    }
    i += std::max<std::size_t>(escape.size, 2);
  }
  return "";
}

std::size_t behind_closing(std::string_view text, std::size_t at, char closing) {
  for (++at; at < text.size() && text[at] != closing; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

std::string with_plain_dots(std::string_view regex) {
  std::string result;
  for (std::size_t at = 0; at < regex.size();) {
    const std::size_t end = end_of_sign(regex, at);
    result += regex[at] == '.' ? "[^\\n\\r]" : regex.substr(at, end - at);
    at = end;
  }
  return result;
}

std::string with_text_around(std::string_view regex) {
  const bool is_one = !has_alternatives(regex);
  const bool at_begin = is_one && regex.starts_with('^');
  if (at_begin) regex.remove_prefix(1);
  const bool at_end = is_one && regex.ends_with('$') && !regex.ends_with("\\$");
  if (at_end) regex.remove_suffix(1);
  std::string all = at_begin ? "" : "[\\s\\S]*";
  if (!regex.empty()) all += fmt::format("(?:{})", regex);
  return all + (at_end ? "" : "[\\s\\S]*");
}

}  // namespace bl
