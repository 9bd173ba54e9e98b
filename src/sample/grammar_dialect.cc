#include "sample/grammar_dialect.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "sample/grammar_hooks.h"

namespace bl {
namespace {

constexpr std::string_view kAssign = "::=";
// Nested groups take stack.
constexpr int kNesting = 256;
// Words that the library's parser does not take for the name of a rule.
constexpr std::string_view kTakenWords[] = {"true",  "false",        "TagDispatch",
                                            "Token", "ExcludeToken", "TokenTagDispatch",
                                            "Regex", "Substring"};

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

// Appends a character of a literal or a class as the library's EBNF has it, escaped if it is a
// control character or among `special`.
void append_character(char32_t code, std::string_view special, std::string& out) {
  const bool is_ascii = code < 0x80;
  if (is_ascii &&
      (code < 0x20 || code == 0x7f || special.find(static_cast<char>(code)) != special.npos)) {
    out += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(code));
  } else {
    append_utf8(code, out);
  }
}

// A name for a message.
std::string_view shown(std::string_view name) { return name.substr(0, 60); }

class GrammarTranslation {
 public:
  explicit GrammarTranslation(std::string_view text) : text_(text) { find_rules(); }

  std::string run() {
    std::string made;
    at_ = 0;
    for (skip_space(); at_ < text_.size(); skip_space()) {
      if (!heads_.contains(at_)) refuse(shown_here() + " outside of a rule");
      made += library_names_.at(take_word());
      skip_space();
      at_ += kAssign.size();
      made += " ::= " + alternatives() + '\n';
    }
    return made;
  }

 private:
  [[noreturn]] void refuse_at(std::size_t offset, std::string_view what) const {
    const std::string_view before = text_.substr(0, offset);
    const std::size_t begin = before.rfind('\n') + 1;  // 0 if there is none
    fail(ErrorCode::kInvalidArgument, "the grammar has {} at line {}, column {}", what,
         1 + std::ranges::count(before, '\n'), 1 + count_code_points(before.substr(begin)));
  }
  [[noreturn]] void refuse(std::string_view what) const { refuse_at(at_, what); }

  // The next character in quotes, for messages.
  std::string shown_here() const {
    if (at_ >= text_.size()) return "an end";
    return fmt::format("`{}`", text_.substr(at_, utf8_size(text_[at_])));
  }

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void skip_space() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      } else if (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view take_word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_of_name(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // Moves behind the closing sign of a literal or a class.
  void skip_quoted(char closing) {
    const std::size_t begin = at_;
    for (++at_; peek() != closing; ++at_) {
      if (peek() == '\\') ++at_;
      if (at_ >= text_.size()) {
        refuse_at(begin, closing == '"' ? "a literal without its closing \""
                                        : "a character class without its closing ]");
      }
    }
    ++at_;
  }

  // Finds the name before each `::=`, since a rule may be used before it is defined.
  void find_rules() {
    std::size_t word_at = text_.npos;
    for (skip_space(); at_ < text_.size(); skip_space()) {
      if (text_.substr(at_).starts_with(kAssign)) {
        if (word_at == text_.npos) refuse("`::=` without the name of a rule before it");
        define(word_at);
        at_ += kAssign.size();
        word_at = text_.npos;
      } else if (is_of_name(peek())) {
        word_at = at_;
        take_word();
      } else {
        word_at = text_.npos;
        if (peek() == '"' || peek() == '[') {
          skip_quoted(peek() == '"' ? '"' : ']');
        } else {
          ++at_;
        }
      }
    }
    if (!library_names_.contains("root")) {
      fail(ErrorCode::kInvalidArgument, "the grammar has no rule named root");
    }
    int renamed = 0;
    for (auto& [name, library_name] : library_names_) {
      const bool taken = std::ranges::find(kTakenWords, name) != std::end(kTakenWords);
      library_name = name;
      if (!taken && !(name[0] >= '0' && name[0] <= '9')) continue;
      library_name = fmt::format("rule-{}-{}", renamed++, name);
      while (library_names_.contains(library_name)) library_name += '_';
    }
  }

  void define(std::size_t offset) {
    const std::size_t behind = std::exchange(at_, offset);
    const std::string_view name = take_word();
    if (!library_names_.try_emplace(name).second) {
      refuse_at(offset, fmt::format("a second definition of {}", shown(name)));
    }
    heads_.insert(offset);
    at_ = behind;
  }

  std::string alternatives() {
    std::string made = sequence();
    while (peek() == '|') {
      ++at_;
      made += " | " + sequence();
    }
    return made;
  }

  // Stops in front of whatever cannot belong to a sequence.
  std::string sequence() {
    std::string made;
    for (skip_space();
         at_ < text_.size() && peek() != '|' && peek() != ')' && !heads_.contains(at_);
         skip_space()) {
      if (!made.empty()) made += ' ';
      made += repeated(element());
    }
    return made.empty() ? "\"\"" : made;
  }

  std::string element() {
    const char first = peek();
    if (first == '"') return literal();
    if (first == '[') return character_class();
    if (first == '(') return group();
    if (is_of_name(first)) return reference();
    if (first == '<' || (first == '!' && peek(1) == '<')) {
      refuse("a token (<…>), which is not supported: write its text as a literal");
    }
    if (first == '\'') refuse("a ', which means nothing: literals stand in \"");
    if (first == '*' || first == '+' || first == '?' || first == '{') {
      refuse(shown_here() + " with nothing before it to repeat");
    }
    refuse(shown_here() + " where a literal, a class, a group or the name of a rule should be");
  }

  std::string group() {
    const std::size_t begin = at_++;
    if (++nesting_ > kNesting) refuse_at(begin, "too many groups inside each other");
    std::string made = '(' + alternatives() + ')';
    if (peek() != ')') refuse_at(begin, "a ( without its )");
    ++at_;
    --nesting_;
    return made;
  }

  // A dot belongs to a name only if a rule has such a name.
  std::string reference() {
    const std::size_t begin = at_;
    std::string_view name = take_word();
    if (!library_names_.contains(name)) {
      name = name.substr(0, name.find('.'));
      at_ = begin + name.size();
      if (name.empty()) {
        ++at_;
        return "[\\x00-\\U0010FFFF]";
      }
    }
    const auto found = library_names_.find(name);
    if (found == library_names_.end()) {
      refuse_at(begin, fmt::format("the name {}, which no rule defines,", shown(name)));
    }
    return found->second;
  }

  std::string repeated(std::string made) {
    bool is_repeated = false;
    for (skip_space(); peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{';
         skip_space()) {
      if (is_repeated) made = '(' + made + ')';
      is_repeated = true;
      if (peek() == '{') {
        const std::string times = range();
        made = times == "{0}" ? "\"\"" : made + times;
      } else {
        made += text_[at_++];
      }
    }
    return made;
  }

  // {n}, {n,}, {n,m} or {,m}.
  std::string range() {
    const std::size_t begin = at_++;
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    const bool has_low = number(low);
    const bool has_comma = peek() == ',';
    if (has_comma) ++at_;
    const bool has_high = has_comma && number(high);
    if (peek() != '}' || (!has_low && !has_high)) {
      refuse_at(begin, "a repetition that is not of the form {n}, {n,}, {,m} or {n,m}");
    }
    ++at_;
    if (has_high && high < low)
      refuse_at(begin, "a repetition whose upper bound is below its lower one");
    if ((has_high && high == 0) || (!has_comma && low == 0)) return "{0}";
    if (!has_comma) return fmt::format("{{{}}}", low);
    return has_high ? fmt::format("{{{},{}}}", low, high) : fmt::format("{{{},}}", low);
  }

  // Reads a number, and the space around it. Returns whether there is one.
  bool number(std::uint32_t& value) {
    constexpr std::uint32_t kTimes = 1'000'000;
    skip_space();
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::invalid_argument) return false;
    if (error != std::errc() || value > kTimes) {
      refuse(fmt::format("a repetition of more than {} times", kTimes));
    }
    at_ += static_cast<std::size_t>(end - begin);
    skip_space();
    return true;
  }

  std::string literal() {
    const std::size_t begin = at_;
    skip_quoted('"');
    const std::size_t end = std::exchange(at_, begin + 1);
    std::string made = "\"";
    while (at_ < end - 1) append_character(character(), "\"\\", made);
    at_ = end;
    return made + '"';
  }

  std::string character_class() {
    const std::size_t begin = at_;
    skip_quoted(']');
    const std::size_t end = std::exchange(at_, begin + 1);
    std::string made = "[";
    if (peek() == '^') made += text_[at_++];
    if (at_ == end - 1) refuse_at(begin, "an empty character class (any character is a dot)");
    while (at_ < end - 1) append_range(end - 1, made);
    at_ = end;
    return made + ']';
  }

  void append_range(std::size_t end, std::string& made) {
    constexpr std::string_view kSpecial = "^-[]\\\"";
    const std::size_t begin = at_;
    const char32_t low = character();
    append_character(low, kSpecial, made);
    if (peek() != '-' || at_ + 1 == end) return;
    ++at_;
    const char32_t high = character();
    if (high < low) refuse_at(begin, "a range whose end comes before its beginning");
    made += '-';
    append_character(high, kSpecial, made);
  }

  // Reads a character, which may be escaped.
  char32_t character() {
    if (peek() != '\\') return character_here();
    const std::size_t begin = at_++;
    const char letter = text_[at_++];
    if (letter == 'x') return coded(begin, 2);
    if (letter == 'u') return coded(begin, 4);
    if (letter == 'U') return coded(begin, 8);
    if (is_set_of_signs(letter)) {
      refuse_at(
          begin,
          fmt::format("\\{}, which is not supported in grammars: write the characters as a class,",
                      letter));
    }
    constexpr std::string_view kLetters = "abefnrtv0";
    constexpr std::string_view kMeant("\a\b\x1b\f\n\r\t\v\0", kLetters.size());
    if (const std::size_t i = kLetters.find(letter); i != kLetters.npos) return kMeant[i];
    if (is_of_name(letter) && letter != '-' && letter != '.' && letter != '_') {
      refuse_at(begin, fmt::format("the unknown escape \\{}", letter));
    }
    at_ = begin + 1;
    return character_here();
  }

  // The code point of an escape with this many hexadecimal digits, or of a surrogate pair.
  char32_t coded(std::size_t begin, std::size_t digits) {
    std::uint32_t code = 0;
    const char* const from = text_.data() + at_;
    const char* const last = from + std::min(digits, text_.size() - at_);
    const auto [end, error] = std::from_chars(from, last, code, 16);
    at_ += static_cast<std::size_t>(end - from);
    if (error != std::errc() || static_cast<std::size_t>(end - from) != digits) {
      refuse_at(begin, fmt::format("an escape with fewer than {} hexadecimal digits", digits));
    }
    if (digits == 4) {
      const std::string next(text_.substr(at_, 6));
      at_ += static_cast<std::size_t>(join_surrogates(next.c_str(), code));
    }
    if (!is_character(code)) {
      refuse_at(begin, fmt::format("{}, which is not a Unicode character,",
                                   text_.substr(begin, at_ - begin)));
    }
    return code;
  }

  char32_t character_here() {
    const CodePoint point = code_point_at(text_, at_);
    at_ += point.size;
    return point.value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  std::set<std::size_t> heads_;  // offsets of the names that begin a rule
  // The name of each rule as it is written, and the one that the library gets.
  std::map<std::string_view, std::string, std::less<>> library_names_;
};

}  // namespace

std::string library_grammar(std::string_view grammar) { return GrammarTranslation(grammar).run(); }

}  // namespace bl
