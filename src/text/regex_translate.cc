// Translates regular expressions from Oniguruma (Ruby syntax) to PCRE2. These are the differences
// that occur in tokenizer files:
//   \s \w \b \h       stand for other sets of characters than in PCRE2 with UCP
//   [a[bc]] [a&&b]    sets of sets
//   \p{Han}           means the script, not the script extensions
//   \p{Letter}        long names of general categories; \p{^L}; POSIX names as properties
//   (?i) mid-pattern  reaches to the end of its group, alternatives included
//   (?m)              is PCRE2's (?s); ^ and $ always match at lines
//   a{2,3}+ a{,3}     the plus repeats and is not possessive; the lower bound may be missing
//   \uHHHH            a code point

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/regex.h"

namespace bl {
namespace {

// The contents of sets, to be put between brackets.
constexpr const char* kSpace = R"(\t-\r\x{85}\p{Z})";
constexpr const char* kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Word characters outside of sets: for single characters Oniguruma has a table of its own in
// Latin-1.
constexpr const char* kWordAlone =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr const char* kHexDigit = "0-9A-Fa-f";
constexpr int kMaxSetNesting = 100;

struct Name {
  std::string_view from;
  std::string_view to;
};

// The names of properties that PCRE2 lacks, as contents of sets.
constexpr std::array kProperties = {
    Name{"letter", R"(\p{L})"},
    Name{"mark", R"(\p{M})"},
    Name{"number", R"(\p{N})"},
    Name{"punctuation", R"(\p{P})"},
    Name{"symbol", R"(\p{S})"},
    Name{"separator", R"(\p{Z})"},
    Name{"other", R"(\p{C})"},
    Name{"uppercaseletter", R"(\p{Lu})"},
    Name{"lowercaseletter", R"(\p{Ll})"},
    Name{"titlecaseletter", R"(\p{Lt})"},
    Name{"modifierletter", R"(\p{Lm})"},
    Name{"otherletter", R"(\p{Lo})"},
    Name{"casedletter", R"(\p{Lu}\p{Ll}\p{Lt})"},
    Name{"lc", R"(\p{Lu}\p{Ll}\p{Lt})"},
    Name{"nonspacingmark", R"(\p{Mn})"},
    Name{"spacingmark", R"(\p{Mc})"},
    Name{"enclosingmark", R"(\p{Me})"},
    Name{"combiningmark", R"(\p{M})"},
    Name{"decimalnumber", R"(\p{Nd})"},
    Name{"letternumber", R"(\p{Nl})"},
    Name{"othernumber", R"(\p{No})"},
    Name{"connectorpunctuation", R"(\p{Pc})"},
    Name{"dashpunctuation", R"(\p{Pd})"},
    Name{"openpunctuation", R"(\p{Ps})"},
    Name{"closepunctuation", R"(\p{Pe})"},
    Name{"initialpunctuation", R"(\p{Pi})"},
    Name{"finalpunctuation", R"(\p{Pf})"},
    Name{"otherpunctuation", R"(\p{Po})"},
    Name{"mathsymbol", R"(\p{Sm})"},
    Name{"currencysymbol", R"(\p{Sc})"},
    Name{"modifiersymbol", R"(\p{Sk})"},
    Name{"othersymbol", R"(\p{So})"},
    Name{"spaceseparator", R"(\p{Zs})"},
    Name{"lineseparator", R"(\p{Zl})"},
    Name{"paragraphseparator", R"(\p{Zp})"},
    Name{"control", R"(\p{Cc})"},
    Name{"format", R"(\p{Cf})"},
    Name{"surrogate", R"(\p{Cs})"},
    Name{"privateuse", R"(\p{Co})"},
    Name{"unassigned", R"(\p{Cn})"},
    // The names of POSIX brackets, which may be used as properties too.
    Name{"alnum", R"(\p{Alphabetic}\p{Nd})"},
    Name{"alpha", R"(\p{Alphabetic})"},
    Name{"ascii", R"(\x{0}-\x{7f})"},
    Name{"blank", R"(\t\p{Zs})"},
    Name{"cntrl", R"(\p{Cc})"},
    Name{"digit", R"(\p{Nd})"},
    Name{"graph", R"(\x{21}-\x{7e}\p{L}\p{M}\p{N}\p{P}\p{S}\p{Cf}\p{Co})"},
    Name{"lower", R"(\p{Lowercase})"},
    Name{"print", R"(\x{20}-\x{7e}\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}\p{Cf}\p{Co})"},
    Name{"punct", R"(\p{P}\p{S})"},
    Name{"space", kSpace},
    Name{"upper", R"(\p{Uppercase})"},
    Name{"xdigit", kHexDigit},
    Name{"word", kWord},
};

std::string simplified(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  }
  return out;
}

// A set of characters that is being built: the contents of a plain set, plus whole expressions that
// each match one character.
struct Set {
  std::string contents;
  std::vector<std::string> others;

  std::string expression() const {
    if (others.empty()) return contents.empty() ? "(?!)" : "[" + contents + "]";
    std::string out = "(?:";
    if (!contents.empty()) out += "[" + contents + "]";
    for (const std::string& other : others) {
      if (out.size() > 3) out += '|';
      out += other;
    }
    return out + ")";
  }
};

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  std::string run() {
    groups_.push_back({0, 0});
    while (!done()) {
      const std::size_t atom = out_.size();
      const char c = peek();
      if (c == '\\') {
        ++at_;
        escape();
        atom_ = atom;
      } else if (c == '[') {
        ++at_;
        out_ += set(0);
        atom_ = atom;
      } else if (c == '(') {
        open_group();
      } else if (c == ')') {
        close_group();
      } else if (c == '{' && interval()) {
        continue;
      } else {
        if (c != '*' && c != '+' && c != '?') atom_ = atom;
        copy_character();
      }
    }
    for (int i = 0; i < groups_.back().extra; ++i) out_ += ')';
    return std::move(out_);
  }

 private:
  struct Group {
    std::size_t begin;  // its position in out_
    int extra;          // parentheses that (?flags) has opened inside it
  };

  bool done() const { return at_ >= in_.size(); }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::kInvalidFile, "{}: the pattern does not compile: {} at byte {}", where_, what,
         at_);
  }

  void copy_character() {
    const unsigned size = utf8_size(peek());
    out_ += in_.substr(at_, size);
    at_ += size;
  }

  std::string code_point_escape(std::string_view digits) const {
    return fmt::format("\\x{{{}}}", digits);
  }

  // Reads the digits of \x{H…}, \xHH or \uHHHH. The letter has already been read.
  std::string_view hex_digits(std::size_t most) {
    std::size_t begin = at_;
    if (peek() == '{') {
      begin = ++at_;
      while (!done() && peek() != '}') ++at_;
      const std::string_view digits = in_.substr(begin, at_ - begin);
      if (done()) refuse("\\x{ without }");
      ++at_;
      return digits;
    }
    while (at_ - begin < most && std::isxdigit(static_cast<unsigned char>(peek()))) ++at_;
    if (at_ == begin) refuse("hexadecimal digits are missing");
    return in_.substr(begin, at_ - begin);
  }

  // Reads {Name} behind \p or \P and returns it as contents of a set; {^Name} flips `negated`.
  std::string property(bool& negated) {
    if (peek() != '{') {  // \pL
      std::string name(in_.substr(at_, done() ? 0 : utf8_size(peek())));
      at_ += name.size();
      return "\\p{" + name + "}";
    }
    const std::size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) refuse("\\p{ without }");
    std::string_view name = in_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (!name.empty() && name.front() == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::string plain = simplified(name);
    for (const Name& known : kProperties) {
      if (known.from == plain) return std::string(known.to);
    }
    // A bare script name means the script extensions in PCRE2, but the script itself in Oniguruma.
    const std::string script = fmt::format("\\p{{sc:{}}}", name);
    return compiles(script) ? script : fmt::format("\\p{{{}}}", name);
  }

  static bool compiles(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_UTF, &error, &at, nullptr);
    pcre2_code_free(code);
    return code != nullptr;
  }

  // Reads an escape that means a set of characters. Returns false, having read nothing, for others.
  bool set_escape(std::string& contents, bool& negated) {
    const char c = peek();
    switch (c) {
      case 's':
      case 'S':
        contents = kSpace;
        break;
      case 'w':
      case 'W':
        contents = kWord;
        break;
      case 'd':
      case 'D':
        contents = R"(\p{Nd})";
        break;
      case 'h':
      case 'H':
        contents = kHexDigit;
        break;
      case 'p':
      case 'P':
        negated = c == 'P';
        ++at_;
        contents = property(negated);
        return true;
      default:
        return false;
    }
    negated = c < 'a';
    ++at_;
    return true;
  }

  // Translates an escape outside of sets. The backslash has already been read.
  void escape() {
    if (done()) refuse("a backslash ends the pattern");
    std::string contents;
    bool negated = false;
    const bool word = peek() == 'w' || peek() == 'W';
    if (set_escape(contents, negated)) {
      if (word) contents = kWordAlone;
      out_ += (negated ? "[^" : "[") + contents + "]";
      return;
    }
    const char c = peek();
    if (c == 'b' || c == 'B') {
      ++at_;
      const std::string word_set = std::string("[") + kWordAlone + "]";
      out_ += c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word_set)
                       : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word_set);
    } else if (c == 'u' || c == 'x') {
      ++at_;
      out_ += code_point_escape(hex_digits(c == 'u' ? 4 : 2));
    } else if (c == 'O') {
      ++at_;
      out_ += "(?s:.)";
    } else {
      out_ += '\\';
      copy_character();
    }
  }

  // Translates an escape inside a set. The backslash has already been read.
  void escape_in_set(Set& set) {
    if (done()) refuse("a backslash ends the pattern");
    std::string contents;
    bool negated = false;
    if (set_escape(contents, negated)) {
      if (negated) {
        set.others.push_back("[^" + contents + "]");
      } else {
        set.contents += contents;
      }
      return;
    }
    const char c = peek();
    if (c == 'u' || c == 'x') {
      ++at_;
      set.contents += code_point_escape(hex_digits(c == 'u' ? 4 : 2));
      return;
    }
    const unsigned size = utf8_size(c);
    set.contents += '\\';
    set.contents += in_.substr(at_, size);
    at_ += size;
  }

  // Reads [:name:] if it stands here; the first bracket has already been read.
  bool posix(Set& set) {
    if (peek() != ':') return false;
    const std::size_t end = in_.find(":]", at_ + 1);
    if (end == std::string_view::npos || end - at_ > 20) return false;
    std::string_view name = in_.substr(at_ + 1, end - at_ - 1);
    const bool negated = !name.empty() && name.front() == '^';
    if (negated) name.remove_prefix(1);
    for (const Name& known : kProperties) {
      if (known.from != name) continue;
      if (negated) {
        set.others.push_back(fmt::format("[^{}]", known.to));
      } else {
        set.contents += known.to;
      }
      at_ = end + 2;
      return true;
    }
    return false;
  }

  // Translates a set up to its closing bracket into an expression. The opening bracket has already
  // been read.
  std::string set(int depth) {
    if (depth > kMaxSetNesting) refuse("sets are nested too deeply");
    const bool negated = peek() == '^';
    if (negated) ++at_;
    std::vector<Set> parts(1);  // the operands of &&
    bool first = true;
    while (true) {
      if (done()) refuse("[ without ]");
      const char c = peek();
      Set& part = parts.back();
      if (c == ']' && !first) {
        ++at_;
        break;
      }
      first = false;
      if (c == '\\') {
        ++at_;
        escape_in_set(part);
      } else if (c == '[') {
        ++at_;
        if (!posix(part)) part.others.push_back(set(depth + 1));
      } else if (c == '&' && peek(1) == '&') {
        at_ += 2;
        parts.emplace_back();
      } else {
        if (c == ']') part.contents += '\\';
        const unsigned size = utf8_size(c);
        part.contents += in_.substr(at_, size);
        at_ += size;
      }
    }
    if (parts.size() == 1 && parts[0].others.empty()) {
      return (negated ? "[^" : "[") + parts[0].contents + "]";
    }
    std::string all;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      all += i + 1 < parts.size() ? "(?=" + parts[i].expression() + ")" : parts[i].expression();
    }
    return negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
  }

  void open_group() {
    const std::size_t begin = out_.size();
    ++at_;
    if (peek() == '?' && peek(1) == '#') {  // a comment
      const std::size_t end = in_.find(')', at_);
      if (end == std::string_view::npos) refuse("(?# without )");
      at_ = end + 1;
      return;
    }
    if (peek() == '?' && peek(1) == '~') refuse("(?~…) is not supported");
    std::size_t end = at_ + 1;
    while (end < in_.size() &&
           (std::isalpha(static_cast<unsigned char>(in_[end])) || in_[end] == '-')) {
      ++end;
    }
    const bool flags =
        peek() == '?' && end > at_ + 1 && end < in_.size() && (in_[end] == ')' || in_[end] == ':');
    if (!flags) {
      out_ += '(';
      groups_.push_back({begin, 0});
      if (peek() == '?') {  // marks of an assertion, an atomic or a named group
        out_ += '?';
        ++at_;
        if (!done()) copy_character();
      }
      return;
    }
    out_ += "(?";
    for (std::size_t i = at_ + 1; i < end; ++i) out_ += in_[i] == 'm' ? 's' : in_[i];
    out_ += ':';
    if (in_[end] == ')') {
      ++groups_.back().extra;
    } else {
      groups_.push_back({begin, 0});
    }
    at_ = end + 1;
  }

  void close_group() {
    if (groups_.size() == 1) refuse("unmatched )");
    for (int i = 0; i < groups_.back().extra; ++i) out_ += ')';
    atom_ = groups_.back().begin;
    groups_.pop_back();
    out_ += ')';
    ++at_;
  }

  // Reads {n}, {n,}, {n,m} or {,m} and the mark behind it. Returns false if the brace is a plain
  // character.
  bool interval() {
    const std::size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) return false;
    const std::string_view body = in_.substr(at_ + 1, end - at_ - 1);
    const std::size_t comma = body.find(',');
    const bool numeric = body.find_first_not_of("0123456789,") == std::string_view::npos;
    if (body.empty() || body == "," || !numeric || body.rfind(',') != comma) return false;
    out_ += comma == 0 ? fmt::format("{{0{}}}", body) : fmt::format("{{{}}}", body);
    at_ = end + 1;
    const bool fixed = comma == std::string_view::npos;
    if (peek() == '+' || (peek() == '?' && fixed)) {
      out_.insert(atom_, "(?:");
      out_ += ')';
      out_ += peek();
      ++at_;
    }
    return true;
  }

  std::string_view in_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;  // where the last atom begins in out_
  std::vector<Group> groups_;
};

}  // namespace

std::string translate_oniguruma(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

}  // namespace bl
