#include "model/module_pattern.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "format/quoted_name.h"

namespace bl {

namespace {

constexpr std::size_t kMaxCode = 1000;
constexpr std::size_t kMaxLength = 1000;
constexpr int kMaxNesting = 32;
constexpr int kMaxRepeats = 1000;

using Set = std::bitset<256>;

Set range(unsigned char first, unsigned char last) {
  Set set;
  for (int c = first; c <= last; ++c) set.set(static_cast<std::size_t>(c));
  return set;
}

// Sets the class of \d, \w, \s or one of their opposites; false for other letters.
bool class_of(char letter, Set& set) {
  switch (std::tolower(static_cast<unsigned char>(letter))) {
    case 'd':
      set = range('0', '9');
      break;
    case 'w':
      set = range('0', '9') | range('a', 'z') | range('A', 'Z') | range('_', '_');
      break;
    case 's':
      set = range('\t', '\r') | range(' ', ' ');
      break;
    default:
      return false;
  }
  if (std::isupper(static_cast<unsigned char>(letter)) != 0) set = ~set;
  return true;
}

}  // namespace

// Recursive-descent parser, no deeper than kMaxNesting. Jumps are relative, so that pieces of code
// can be concatenated and repeated.
class PatternParser {
 public:
  PatternParser(std::string_view text, const std::string& where, std::vector<Set>& sets)
      : text_(text), where_(where), sets_(sets) {}

  ModulePattern::Code parse() {
    if (text_.size() > kMaxLength) refuse("is longer than any such pattern");
    ModulePattern::Code code = alternatives(0);
    if (at_ < text_.size()) reject("has a ')' without a '('");
    return code;
  }

 private:
  using Code = ModulePattern::Code;
  using Kind = ModulePattern::Kind;

  [[noreturn]] void reject(const char* what) const {
    fail(ErrorCode::kInvalidFile, "{}: the pattern {} {}", where_, quoted_name(text_), what);
  }
  [[noreturn]] void refuse(const char* what) const {
    fail(ErrorCode::kUnsupported,
         "{}: the pattern {} {}; names, '.', classes, groups, '|' and quantifiers are known",
         where_, quoted_name(text_), what);
  }
  bool more() const { return at_ < text_.size(); }
  bool take(char c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  static std::int32_t length(const Code& code) { return static_cast<std::int32_t>(code.size()); }
  void append(Code& to, const Code& from) const {
    if (to.size() + from.size() > kMaxCode) refuse("is too large");
    to.insert(to.end(), from.begin(), from.end());
  }

  Code alternatives(int depth) {
    if (depth > kMaxNesting) refuse("is nested too deeply");
    Code code = sequence(depth);
    while (take('|')) {
      const Code second = sequence(depth);
      Code both{{Kind::kSplit, 1, length(code) + 2}};
      append(both, code);
      both.push_back({Kind::kJump, length(second) + 1});
      append(both, second);
      code = std::move(both);
    }
    return code;
  }

  Code sequence(int depth) {
    Code code;
    while (more() && text_[at_] != '|' && text_[at_] != ')') {
      Code one = atom(depth);
      quantify(one);
      append(code, one);
    }
    return code;
  }

  Code atom(int depth) {
    const char c = text_[at_++];
    switch (c) {
      case '(': {
        if (take('?') && !take(':')) refuse("has a group of a kind that is not known");
        Code code = alternatives(depth + 1);
        if (!take(')')) reject("has a '(' without a ')'");
        return code;
      }
      case '[':
        return one_of(bracket());
      case '.':
        return one_of(~range('\n', '\n'));
      case '^':
        return {{Kind::kBegin}};
      case '$':
        return {{Kind::kEnd}};
      case '\\':
        return one_of(escape());
      case '*':
      case '+':
      case '?':
        reject("has a quantifier with nothing before it");
      default:
        return one_of(range(static_cast<unsigned char>(c), static_cast<unsigned char>(c)));
    }
  }

  Code one_of(const Set& set) {
    sets_.push_back(set);
    return {{Kind::kSet, static_cast<std::int32_t>(sets_.size()) - 1}};
  }

  Set escape() {
    if (!more()) reject("ends with a '\\'");
    const char c = text_[at_++];
    Set set;
    if (class_of(c, set)) return set;
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) refuse("has an escape that is not known");
    return range(static_cast<unsigned char>(c), static_cast<unsigned char>(c));
  }

  Set bracket() {
    const bool negated = take('^');
    Set set;
    bool first = true;
    while (first || !take(']')) {
      first = false;
      if (!more()) reject("has a '[' without a ']'");
      const char c = text_[at_++];
      if (c == '\\') {
        set |= escape();
        continue;
      }
      const auto low = static_cast<unsigned char>(c);
      auto high = low;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        high = static_cast<unsigned char>(text_[at_ + 1]);
        if (high == '\\') refuse("has an escape at the end of a range");
        at_ += 2;
        if (high < low) reject("has a range that runs backwards");
      }
      set |= range(low, high);
    }
    return negated ? ~set : set;
  }

  // Parses a quantifier, if there is one here, and applies it to `code`.
  void quantify(Code& code) {
    int least = 0;
    int most = -1;  // unbounded
    if (take('*')) {
    } else if (take('+')) {
      least = 1;
    } else if (take('?')) {
      most = 1;
    } else if (!counts(least, most)) {
      return;
    }
    if (more() && (text_[at_] == '?' || text_[at_] == '+')) refuse("has a lazy or possessive part");
    Code all;
    for (int i = 0; i < least; ++i) append(all, code);
    if (most < 0) {
      Code star{{Kind::kSplit, 1, length(code) + 2}};
      append(star, code);
      star.push_back({Kind::kJump, -(length(code) + 1)});
      append(all, star);
    }
    for (int i = least; i < most; ++i) {
      Code once{{Kind::kSplit, 1, length(code) + 1}};
      append(once, code);
      append(all, once);
    }
    code = std::move(all);
  }

  // Parses {n}, {n,}, {,m} or {n,m}. Any other '{' is a literal, which no module name contains.
  bool counts(int& least, int& most) {
    const std::size_t start = at_;
    if (!take('{')) return false;
    const bool has_least = number(least);
    const bool has_comma = take(',');
    most = has_comma ? -1 : least;
    const bool has_most = has_comma && number(most);
    if (!take('}') || !(has_least || has_most)) {
      at_ = start;
      return false;
    }
    if (most >= 0 && most < least) reject("has a quantifier that runs backwards");
    return true;
  }

  bool number(int& value) {
    const std::size_t start = at_;
    int read = 0;
    while (more() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      read = read * 10 + (text_[at_++] - '0');
      if (read > kMaxRepeats) refuse("has a quantifier that is too large");
    }
    if (at_ > start) value = read;
    return at_ > start;
  }

  std::string_view text_;
  const std::string& where_;
  std::vector<Set>& sets_;
  std::size_t at_ = 0;
};

ModulePattern::ModulePattern(std::string_view pattern, const std::string& where)
    : code_(PatternParser(pattern, where, sets_).parse()) {}

// Adds the instruction `start` and all that are reachable from it without consuming a character.
// marks[i] is the position (+ 1) at which instruction i was last reached.
void ModulePattern::follow(std::size_t start, std::size_t position, std::size_t length,
                           std::vector<std::size_t>& next, std::vector<std::size_t>& marks) const {
  std::vector<std::size_t> open{start};
  while (!open.empty()) {
    const std::size_t at = open.back();
    open.pop_back();
    if (marks[at] == position + 1) continue;
    marks[at] = position + 1;
    if (at == code_.size()) {
      next.push_back(at);
      continue;
    }
    const Instruction& one = code_[at];
    const auto go = [&](std::int32_t by) {
      open.push_back(static_cast<std::size_t>(static_cast<std::int64_t>(at) + by));
    };
    switch (one.kind) {
      case Kind::kSet:
        next.push_back(at);
        break;
      case Kind::kJump:
        go(one.to);
        break;
      case Kind::kSplit:
        go(one.to);
        go(one.other);
        break;
      case Kind::kBegin:
        if (position == 0) go(1);
        break;
      case Kind::kEnd:
        if (position == length) go(1);
        break;
    }
  }
}

bool ModulePattern::matches(std::string_view name) const {
  std::vector<std::size_t> marks(code_.size() + 1, 0);
  std::vector<std::size_t> now, next;
  follow(0, 0, name.size(), now, marks);
  for (std::size_t i = 0; i < name.size() && !now.empty(); ++i) {
    next.clear();
    for (const std::size_t at : now) {
      if (at == code_.size()) continue;
      const auto set = static_cast<std::size_t>(code_[at].to);
      if (!sets_[set][static_cast<unsigned char>(name[i])]) continue;
      follow(at + 1, i + 1, name.size(), next, marks);
    }
    std::swap(now, next);
  }
  return std::find(now.begin(), now.end(), code_.size()) != now.end();
}

}  // namespace bl
