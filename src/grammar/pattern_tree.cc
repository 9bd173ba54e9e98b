#include "grammar/pattern_tree.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace bl {
namespace {

using PatternKind = PatternNode::Kind;

constexpr int kMostPatternDepth = 150;
constexpr std::size_t kMostRepeats = 100000;

CodePoints digits() { return CodePoints({{'0', '9'}}); }
CodePoints word_signs() { return CodePoints({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
// White space that both ECMAScript and Python mean by \s.
CodePoints certain_spaces() {
  return CodePoints({{'\t', '\r'},
                     {' ', ' '},
                     {0xA0, 0xA0},
                     {0x1680, 0x1680},
                     {0x2000, 0x200A},
                     {0x2028, 0x2029},
                     {0x202F, 0x202F},
                     {0x205F, 0x205F},
                     {0x3000, 0x3000}});
}
// White space for one of them; \S leaves it out, so that both agree with what is written.
CodePoints possible_spaces() {
  return certain_spaces().united(CodePoints({{0x1C, 0x1F}, {0x85, 0x85}, {0xFEFF, 0xFEFF}}));
}
CodePoints line_ends() { return CodePoints({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}); }

std::optional<CodePoints> set_of_letter(char32_t letter) {
  switch (letter) {
    case 'd':
      return digits();
    case 'D':
      return digits().complement();
    case 'w':
      return word_signs();
    case 'W':
      return word_signs().complement();
    case 's':
      return certain_spaces();
    case 'S':
      return possible_spaces().complement();
    default:
      return std::nullopt;
  }
}

// The set with both cases of its ASCII letters.
CodePoints in_any_case(const CodePoints& points) {
  std::vector<CodeRange> ranges = points.ranges();
  for (char32_t upper = 'A'; upper <= 'Z'; ++upper) {
    const char32_t lower = upper + ('a' - 'A');
    if (points.contains(upper)) ranges.push_back({lower, lower});
    if (points.contains(lower)) ranges.push_back({upper, upper});
  }
  return CodePoints(std::move(ranges));
}

class PatternParser {
 public:
  explicit PatternParser(std::string_view regex) : text_(regex) {}

  PatternNode run() {
    if (text_.starts_with("(?i)")) {
      any_case_ = true;
      at_ = 4;
    }
    PatternNode node = choice();
    if (at_ < text_.size()) refuse("has an unmatched )", at_);
    return node;
  }

 private:
  [[noreturn]] static void refuse(std::string_view fault, std::size_t at) {
    fail(ErrorCode::kInvalidArgument, "{} at offset {}", fault, at);
  }

  bool next_is(std::string_view expected) const { return text_.substr(at_).starts_with(expected); }
  bool take(std::string_view expected) {
    if (!next_is(expected)) return false;
    at_ += expected.size();
    return true;
  }
  char32_t take_point() {
    const CodePoint point = code_point_at(text_, at_);
    at_ += point.size;
    return point.value;
  }

  PatternNode set(CodePoints points) const {
    if (any_case_) points = in_any_case(points);
    return {.kind = PatternKind::kSet, .points = std::move(points)};
  }

  PatternNode choice() {
    if (++depth_ > kMostPatternDepth) refuse("nests groups too deep", at_);
    PatternNode node{.kind = PatternKind::kChoice};
    do node.parts.push_back(sequence());
    while (take("|"));
    --depth_;
    if (node.parts.size() > 1) return node;
    PatternNode only = std::move(node.parts[0]);
    return only;
  }

  PatternNode sequence() {
    PatternNode node{.kind = PatternKind::kSequence};
    while (at_ < text_.size() && !next_is("|") && !next_is(")")) {
      const std::size_t begin = at_;
      PatternNode atom = one();
      atom.at = begin;
      atom = quantified(std::move(atom));
      node.parts.push_back(std::move(atom));
    }
    return node;
  }

  PatternNode quantified(PatternNode atom) {
    PatternNode repeated{.kind = PatternKind::kRepeat, .at = at_};
    if (!take_quantifier(repeated)) return atom;
    // ECMAScript and Python repeat neither ^ nor $.
    if (atom.kind == PatternKind::kBegin || atom.kind == PatternKind::kEnd) {
      refuse_repeated_nothing(repeated.at);
    }
    take("?");  // a lazy quantifier matches the same texts
    const std::size_t begin = at_;
    PatternNode second;
    if (take_quantifier(second)) {
      // Python takes a++ for a possessive quantifier, which may match less.
      refuse("has a quantifier after a quantifier", begin);
    }
    repeated.parts.push_back(std::move(atom));
    return repeated;
  }

  [[noreturn]] void refuse_repeated_nothing(std::size_t at) const {
    refuse("has a quantifier with nothing to repeat", at);
  }

  bool take_quantifier(PatternNode& repeated) {
    const std::size_t begin = at_;
    if (take("+")) {
      repeated.fewest = 1;
    } else if (take("?")) {
      repeated.most = 1;
    } else if (!take("*") && !take_counts(repeated.fewest, repeated.most)) {
      return false;
    }
    if (repeated.most && *repeated.most < repeated.fewest) {
      refuse("has a quantifier whose bounds are out of order", begin);
    }
    return true;
  }

  // Reads {n}, {n,} or {n,m}. Anything else in braces is literal text.
  bool take_counts(std::size_t& fewest, std::optional<std::size_t>& most) {
    const std::size_t begin = at_;
    if (!take("{")) return false;
    const std::optional<std::size_t> low = take_number();
    std::optional<std::size_t> high = low;
    const bool range = take(",");
    if (range) high = take_number();
    if (!low && !(range && high)) {
      at_ = begin;
      return false;
    }
    if (!take("}")) {
      at_ = begin;
      return false;
    }
    fewest = low.value_or(0);
    most = high;
    if (fewest > kMostRepeats || most.value_or(0) > kMostRepeats) {
      refuse("repeats too often", begin);
    }
    return true;
  }

  std::optional<std::size_t> take_number() {
    const std::size_t begin = at_;
    std::size_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = std::min(value * 10 + static_cast<std::size_t>(text_[at_++] - '0'), kMostRepeats + 1);
    }
    if (at_ == begin) return std::nullopt;
    return value;
  }

  PatternNode one() {
    const std::size_t begin = at_;
    if (take("(")) return group(begin);
    if (take("[")) return set(char_class(begin));
    if (take("^")) return {.kind = PatternKind::kBegin};
    if (take("$")) return {.kind = PatternKind::kEnd};
    if (take(".")) return {.kind = PatternKind::kSet, .points = line_ends().complement()};
    PatternNode repeated;
    if (take_quantifier(repeated)) refuse_repeated_nothing(begin);
    if (take("\\")) return escape(begin);
    return set(CodePoints::one(take_point()));
  }

  PatternNode group(std::size_t begin) {
    PatternNode node;
    if (take("?=")) {
      node.kind = PatternKind::kAhead;
    } else if (take("?!")) {
      node.kind = PatternKind::kNotAhead;
    } else if (next_is("?<=") || next_is("?<!")) {
      refuse("looks behind, which is not supported,", begin);
    } else if (take("?P<") || take("?<")) {
      const std::size_t end = text_.find('>', at_);
      if (end == text_.npos) refuse("has an unclosed group name", begin);
      at_ = end + 1;
    } else if (next_is("?") && !take("?:")) {
      refuse("has a group or a flag of a kind that is not supported", begin);
    }
    PatternNode inside = choice();
    if (!take(")")) refuse("has an unclosed (", begin);
    if (node.kind == PatternKind::kEmpty) return inside;
    node.parts.push_back(std::move(inside));
    return node;
  }

  PatternNode escape(std::size_t begin) {
    if (at_ == text_.size()) refuse("ends with a backslash", begin);
    const char letter = text_[at_];
    if (letter == 'A' || letter == 'Z' || letter == 'z') {
      ++at_;
      return {.kind = letter == 'A' ? PatternKind::kBegin : PatternKind::kEnd};
    }
    if (letter == 'b' || letter == 'B') {
      refuse("has a word boundary, which is not supported,", begin);
    }
    if (letter == 'p' || letter == 'P') {
      refuse("has a Unicode property, which is not supported,", begin);
    }
    if ((letter >= '1' && letter <= '9') || letter == 'k') {
      refuse("refers back to a group, which is not supported,", begin);
    }
    if (std::optional<CodePoints> points = set_of_letter(static_cast<unsigned char>(letter))) {
      ++at_;
      return set(*std::move(points));
    }
    return set(CodePoints::one(escaped_point(begin)));
  }

  // Reads what follows a backslash that means a single character.
  char32_t escaped_point(std::size_t begin) {
    if (at_ == text_.size()) refuse("ends with a backslash", begin);
    const char32_t letter = take_point();
    switch (letter) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        return '\a';
      case '0':
        return 0;
      case 'c':
        if (at_ < text_.size() && ((text_[at_] | 0x20) >= 'a' && (text_[at_] | 0x20) <= 'z')) {
          return static_cast<char32_t>(text_[at_++] & 0x1f);
        }
        refuse("has \\c without a letter", begin);
      case 'x':
        return hex(2, begin);
      case 'u':
        return unicode(begin);
      default:
        break;
    }
    if (letter < 0x80 &&
        ((letter >= '0' && letter <= '9') || ((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z'))) {
      refuse(fmt::format("has the unknown escape \\{}", static_cast<char>(letter)), begin);
    }
    return letter;
  }

  char32_t unicode(std::size_t begin) {
    if (take("{")) {
      char32_t value = 0;
      int count = 0;
      if (next_is("}")) refuse("has an incomplete escape", begin);
      while (!take("}")) {
        value = value << 4 | hex(1, begin);
        if (++count > 6) refuse("has an escape that is no character", begin);
      }
      return checked(value, begin);
    }
    const char32_t first = hex(4, begin);
    if (first < 0xD800 || first > 0xDBFF || !take("\\u")) return checked(first, begin);
    const char32_t second = hex(4, begin);
    if (second < 0xDC00 || second > 0xDFFF) refuse_surrogate(begin);
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  char32_t checked(char32_t value, std::size_t begin) const {
    if (value > 0x10FFFF) refuse("has an escape that is no character", begin);
    if (value >= 0xD800 && value <= 0xDFFF) refuse_surrogate(begin);
    return value;
  }

  // `begin` is where the backslash stands, and the text has been read up to the fault.
  [[noreturn]] void refuse_surrogate(std::size_t begin) const {
    fail(ErrorCode::kInvalidArgument,
         "has {} at offset {}, which is half of a surrogate pair without the other half",
         text_.substr(begin, at_ - begin), begin);
  }

  char32_t hex(int count, std::size_t begin) {
    char32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      const char low = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<char32_t>(c - '0');
      } else if (low >= 'a' && low <= 'f') {
        value = value * 16 + static_cast<char32_t>(low - 'a' + 10);
      } else {
        refuse("has an incomplete escape", begin);
      }
      ++at_;
    }
    return value;
  }

  CodePoints char_class(std::size_t begin) {
    const bool negated = take("^");
    // ECMAScript ends the class here. Python takes the ] for a member of a class that a later ]
    // ends; where there is one, the expression means two different things.
    if (next_is("]") && text_.find(']', at_ + 1) != text_.npos) {
      refuse("has a class that begins with ], its end or a member (write [\\s\\S] or \\]),", begin);
    }
    std::vector<CodeRange> ranges;
    CodePoints sets;
    while (!take("]")) {
      if (at_ == text_.size()) refuse("has an unclosed [", begin);
      char32_t low = 0;
      if (const std::optional<CodePoints> points = class_item(begin, low)) {
        sets = sets.united(*points);
        continue;
      }
      const bool is_range = next_is("-") && !next_is("-]") && at_ + 1 < text_.size();
      if (!is_range) {
        ranges.push_back({low, low});
        continue;
      }
      take("-");
      char32_t high = 0;
      if (const std::optional<CodePoints> points = class_item(begin, high)) {
        // Beside a set, the hyphen is literal.
        ranges.push_back({low, low});
        ranges.push_back({'-', '-'});
        sets = sets.united(*points);
        continue;
      }
      if (high < low) refuse("has a range that is out of order", begin);
      ranges.push_back({low, high});
    }
    CodePoints points = CodePoints(std::move(ranges)).united(sets);
    if (any_case_) points = in_any_case(points);
    return negated ? points.complement() : points;
  }

  // Reads one item of a class: a set such as \d, or else one character into `point`.
  std::optional<CodePoints> class_item(std::size_t begin, char32_t& point) {
    if (!take("\\")) {
      if (at_ == text_.size()) refuse("has an unclosed [", begin);
      point = take_point();
      return std::nullopt;
    }
    if (at_ == text_.size()) refuse("has an unclosed [", begin);
    const char letter = text_[at_];
    if (letter == 'p' || letter == 'P') {
      refuse("has a Unicode property, which is not supported,", at_ - 1);
    }
    if (std::optional<CodePoints> points = set_of_letter(static_cast<unsigned char>(letter))) {
      ++at_;
      return points;
    }
    if (take("b")) {
      point = '\b';
      return std::nullopt;
    }
    point = escaped_point(at_ - 1);
    return std::nullopt;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool any_case_ = false;
};

}  // namespace

PatternNode parse_pattern(std::string_view regex) { return PatternParser(regex).run(); }

}  // namespace bl
