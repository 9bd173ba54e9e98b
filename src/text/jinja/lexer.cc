#include "text/jinja/lexer.h"

#include <array>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja/python_text.h"

namespace bl::jinja {
namespace {

struct Operator {
  std::string_view text;
  Token token;
};

// Longer operators come first.
constexpr std::array kOperators = {
    Operator{"//", Token::kFloorDiv},   Operator{"**", Token::kPow},
    Operator{"==", Token::kEq},         Operator{"!=", Token::kNe},
    Operator{"<=", Token::kLe},         Operator{">=", Token::kGe},
    Operator{"+", Token::kAdd},         Operator{"-", Token::kSub},
    Operator{"*", Token::kMul},         Operator{"/", Token::kDiv},
    Operator{"%", Token::kMod},         Operator{"~", Token::kTilde},
    Operator{"<", Token::kLt},          Operator{">", Token::kGt},
    Operator{"=", Token::kAssign},      Operator{".", Token::kDot},
    Operator{",", Token::kComma},       Operator{":", Token::kColon},
    Operator{";", Token::kSemicolon},   Operator{"|", Token::kPipe},
    Operator{"(", Token::kLeftParen},   Operator{")", Token::kRightParen},
    Operator{"[", Token::kLeftBracket}, Operator{"]", Token::kRightBracket},
    Operator{"{", Token::kLeftBrace},   Operator{"}", Token::kRightBrace},
};

bool is_radix_digit(char c, int radix) {
  if (radix <= 10) return c >= '0' && c < '0' + radix;
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Turns `\r\n` and `\r` into `\n`, and drops one line end at the very end.
std::string_view normalize_lines(std::string_view source, Arena& arena) {
  if (source.empty()) return {};
  char* out = arena.array<char>(source.size());
  std::size_t size = 0;
  for (std::size_t i = 0; i < source.size(); ++i) {
    char c = source[i];
    if (c == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      c = '\n';
    }
    out[size++] = c;
  }
  if (out[size - 1] == '\n') --size;
  return {out, size};
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name) : source_(source), name_(name) {}

  std::vector<LexedToken> run() {
    while (next_tag()) {
    }
    push(Token::kEnd, {});
    return std::move(tokens_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail_at(std::uint32_t line, fmt::format_string<Args...> format,
                            Args&&... args) const {
    fail(ErrorCode::kInvalidFile, "{}, line {}: {}", name_, line,
         fmt::format(format, std::forward<Args>(args)...));
  }

  bool at(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  void push(Token type, std::string_view text) { tokens_.push_back({type, line_, text}); }

  // Moves on by `bytes` and keeps the line number.
  std::string_view advance(std::size_t bytes) {
    const std::string_view passed = source_.substr(at_, bytes);
    for (const char c : passed) line_ += c == '\n';
    at_ += passed.size();
    return passed;
  }

  std::size_t white_space(std::size_t from) const {
    std::size_t end = from;
    while (end < source_.size()) {
      const CodePoint c = code_point_at(source_, end);
      if (!is_python_space(c.value)) break;
      end += c.size;
    }
    return end;
  }

  // Adds the text before a tag, which begins `length` bytes from here. The text is cut as the tag's
  // sign and lstrip_blocks demand.
  void push_text(std::size_t length, char sign, bool is_variable) {
    std::string_view text = source_.substr(at_, length);
    if (sign == '-') {
      text = python_strip(text, StripSide::kRight);
    } else if (sign != '+' && !is_variable) {
      const std::size_t line_begin = text.rfind('\n') + 1;  // npos + 1 == 0
      const bool own_line = line_begin > 0 || at_ == 0 || source_[at_ - 1] == '\n';
      if (own_line && python_strip(text.substr(line_begin), StripSide::kLeft).empty()) {
        text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) push(Token::kText, text);
    advance(length);
  }

  char sign_at(std::size_t offset) const {
    const char c = offset < source_.size() ? source_[offset] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  // Returns the length of `{% WORD %}` at `offset`, or 0. The word is raw or endraw.
  std::size_t raw_tag(std::size_t offset, std::string_view word) const {
    std::size_t end = offset + 2;
    if (sign_at(end) != '\0') ++end;
    end = white_space(end);
    if (!source_.substr(end).starts_with(word)) return 0;
    end = white_space(end + word.size());
    const std::string_view rest = source_.substr(end);
    if (rest.starts_with("-%}")) return white_space(end + 3) - offset;
    const bool closes = word == "endraw";
    if (closes && rest.starts_with("+%}")) return end + 3 - offset;
    if (!rest.starts_with("%}")) return 0;
    end += 2;
    if (closes && end < source_.size() && source_[end] == '\n') ++end;
    return end - offset;
  }

  void raw_block(std::size_t begin_length) {
    const std::uint32_t line = line_;
    advance(begin_length);
    if (at_ == source_.size()) return;  // only at the end of the source it need not be closed
    for (std::size_t from = at_;;) {
      const std::size_t tag = source_.find("{%", from);
      if (tag == std::string_view::npos) fail_at(line, "{{% raw %}} has no {{% endraw %}}");
      const std::size_t length = raw_tag(tag, "endraw");
      if (length == 0) {
        from = tag + 2;
        continue;
      }
      push_text(tag - at_, sign_at(tag + 2), false);
      advance(length);
      return;
    }
  }

  void comment() {
    if (at_ == source_.size()) return;  // only at the end of the source it need not be closed
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) fail_at(line_, "a comment {{# has no end #}}");
    const char sign = end > at_ ? sign_at(end - 1) : '\0';
    std::size_t after = end + 2;
    if (sign == '-') {
      after = white_space(after);
    } else if (sign != '+' && after < source_.size() && source_[after] == '\n') {
      ++after;
    }
    advance(after - at_);
  }

  // Reads text and one whole tag; returns false at the end of the source.
  bool next_tag() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
        if (at_ < source_.size()) push(Token::kText, source_.substr(at_));
        at_ = source_.size();
        return false;
      }
      const char second = source_[tag + 1];
      if (second == '{' || second == '%' || second == '#') break;
    }
    const char second = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    const std::size_t raw = second == '%' ? raw_tag(tag, "raw") : 0;
    push_text(tag - at_, sign, second == '{');
    if (raw > 0) {
      raw_block(raw);
      return true;
    }
    advance(sign == '\0' ? 2 : 3);
    if (second == '#') {
      comment();
    } else {
      inside_tag(second == '{');
    }
    return true;
  }

  // Returns the length of the tag's end if it stands here, else 0. White space that it removes is
  // included.
  std::size_t tag_end(bool is_variable) const {
    if (is_variable) {
      if (at("-}}")) return white_space(at_ + 3) - at_;
      return at("}}") ? 2 : 0;
    }
    if (at("+%}")) return 3;
    if (at("-%}")) return white_space(at_ + 3) - at_;
    if (at("%}\n")) return 3;
    return at("%}") ? 2 : 0;
  }

  void inside_tag(bool is_variable) {
    const std::uint32_t first_line = line_;
    push(is_variable ? Token::kVariableBegin : Token::kBlockBegin, {});
    std::string open;  // closing brackets that are expected
    for (;;) {
      advance(white_space(at_) - at_);
      if (at_ >= source_.size()) fail_at(first_line, "a tag is not closed");
      if (open.empty()) {
        if (const std::size_t length = tag_end(is_variable)) {
          push(is_variable ? Token::kVariableEnd : Token::kBlockEnd, {});
          advance(length);
          return;
        }
      }
      const char c = source_[at_];
      if (is_digit(c) && number()) continue;
      if (c == '\'' || c == '"') {
        string(c);
      } else if (const std::size_t length = name_length()) {
        push(Token::kName, source_.substr(at_, length));
        advance(length);
      } else {
        symbol(open);
      }
    }
  }

  std::size_t name_length() const {
    std::size_t end = at_;
    while (end < source_.size()) {
      const CodePoint c = code_point_at(source_, end);
      if (!is_python_word(c.value)) break;
      end += c.size;
    }
    return end - at_;
  }

  void symbol(std::string& open) {
    for (const Operator& op : kOperators) {
      if (!at(op.text)) continue;
      if (op.token == Token::kLeftParen) open.push_back(')');
      if (op.token == Token::kLeftBracket) open.push_back(']');
      if (op.token == Token::kLeftBrace) open.push_back('}');
      const char c = op.text[0];
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) fail_at(line_, "unexpected '{}'", c);
        if (open.back() != c) fail_at(line_, "unexpected '{}', expected '{}'", c, open.back());
        open.pop_back();
      }
      push(op.token, op.text);
      advance(op.text.size());
      return;
    }
    fail_at(line_, "unexpected character '{}' in a tag",
            source_.substr(at_, utf8_size(source_[at_])));
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(line_, "a string has no closing quote");
    push(Token::kString, source_.substr(at_ + 1, end - at_ - 1));
    advance(end + 1 - at_);
  }

  // Returns the end of the digits that begin at `from`; single underscores may stand between them.
  std::size_t digits(std::size_t from, int radix) const {
    std::size_t end = from;
    while (end < source_.size()) {
      if (is_radix_digit(source_[end], radix)) {
        ++end;
      } else if (end > from && source_[end] == '_' && end + 1 < source_.size() &&
                 is_radix_digit(source_[end + 1], radix)) {
        ++end;
      } else {
        break;
      }
    }
    return end;
  }

  // Returns the end of the exponent (`e+10`) that begins at `from`, or `from` if there is none.
  std::size_t exponent(std::size_t from) const {
    if (from >= source_.size() || (source_[from] != 'e' && source_[from] != 'E')) return from;
    std::size_t first = from + 1;
    if (sign_at(first) != '\0') ++first;
    const std::size_t end = digits(first, 10);
    return end > first ? end : from;
  }

  bool number() {
    const std::size_t whole = digits(at_, 10);
    std::size_t end = whole;
    // After a dot this is an element and never a fraction: "x.0.5" has two subscripts.
    if (at_ == 0 || source_[at_ - 1] != '.') {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        end = digits(end + 1, 10);
      }
      end = exponent(end);
    }
    if (end > whole) {
      push(Token::kFloat, source_.substr(at_, end - at_));
      advance(end - at_);
      return true;
    }
    end = integer_end(whole);
    if (end == at_) return false;
    push(Token::kInteger, source_.substr(at_, end - at_));
    advance(end - at_);
    return true;
  }

  std::size_t integer_end(std::size_t decimal_end) const {
    if (source_[at_] != '0') return decimal_end;
    if (at_ + 2 < source_.size()) {
      const char mark = static_cast<char>(source_[at_ + 1] | 0x20);
      const int radix = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
      const std::size_t first = at_ + 2 + (source_[at_ + 2] == '_' ? 1 : 0);
      if (radix != 0 && digits(first, radix) > first) return digits(first, radix);
    }
    std::size_t end = at_ + 1;  // only zeros may follow a zero
    while (end < source_.size() &&
           (source_[end] == '0' ||
            (source_[end] == '_' && end + 1 < source_.size() && source_[end + 1] == '0'))) {
      ++end;
    }
    return end;
  }

  std::string_view source_;
  std::string_view name_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
  std::vector<LexedToken> tokens_;
};

}  // namespace

std::vector<LexedToken> tokenize(std::string_view source, std::string_view name, Arena& arena) {
  return Lexer(normalize_lines(source, arena), name).run();
}

}  // namespace bl::jinja
