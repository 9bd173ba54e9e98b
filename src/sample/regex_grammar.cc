#include "sample/regex_grammar.h"

#include <cstdint>

#include "base/check.h"
#include "base/error.h"
#include "grammar/pattern_tree.h"

namespace bl {
namespace {

using PatternKind = PatternNode::Kind;

// Looks for what a grammar cannot say: anchors that can never match, because something stands on
// their wrong side, and looking ahead.
class RegexCheck {
 public:
  explicit RegexCheck(std::string_view regex) : regex_(regex) {}

  // `first`: nothing comes before the node; `last`: nothing comes behind it.
  void visit(const PatternNode& node, bool first, bool last) {
    switch (node.kind) {
      case PatternKind::kEmpty:
        return;
      case PatternKind::kSet:
        if (node.points.empty()) add("has a class that holds no character", node);
        return;
      case PatternKind::kBegin:
        if (!first) add_anchor(node);
        return;
      case PatternKind::kEnd:
        if (!last) add_anchor(node);
        return;
      case PatternKind::kSequence:
        return visit_sequence(node, first, last);
      case PatternKind::kChoice:
        for (const PatternNode& part : node.parts) visit(part, first, last);
        return;
      case PatternKind::kRepeat: {
        // A repeated part follows itself.
        const bool once = node.most && *node.most <= 1;
        return visit(node.parts[0], once && first, once && last);
      }
      case PatternKind::kAhead:
      case PatternKind::kNotAhead:
        return add("looks ahead, which is not supported where the whole text must match,", node);
    }
  }
  const std::string& fault() const { return fault_; }

 private:
  void add(std::string_view phrase, const PatternNode& node) {
    if (fault_.empty()) fault_ = fmt::format("{} at offset {}", phrase, node.at);
  }

  // An anchor is written `^`, `$`, `\A` or `\Z`.
  void add_anchor(const PatternNode& node) {
    if (!fault_.empty()) return;
    const std::string_view written = regex_.substr(node.at, regex_[node.at] == '\\' ? 2 : 1);
    fault_ = fmt::format(
        "has {} at offset {}, where it can never match: the whole text must match the expression",
        written, node.at);
  }

  void visit_sequence(const PatternNode& node, bool first, bool last) {
    const std::size_t count = node.parts.size();
    for (std::size_t i = 0; i < count; ++i) {
      const PatternKind kind = node.parts[i].kind;
      // A second ^ would match as well, but is surely a mistake.
      const bool begins = i == 0 || (node.parts[i - 1].kind == PatternKind::kBegin &&
                                     kind != PatternKind::kBegin && i == 1);
      const bool ends = i + 1 == count || (node.parts[i + 1].kind == PatternKind::kEnd &&
                                           kind != PatternKind::kEnd && i + 2 == count);
      visit(node.parts[i], first && begins, last && ends);
    }
  }

  std::string_view regex_;
  std::string fault_;
};

// Appends a character of a literal or a class.
void append_point(char32_t point, std::string& out) {
  const bool plain = (point >= '0' && point <= '9') || (point >= 'A' && point <= 'Z') ||
                     (point >= 'a' && point <= 'z');
  if (plain) {
    out += static_cast<char>(point);
  } else {
    out += fmt::format("\\U{:08x}", static_cast<std::uint32_t>(point));
  }
}

std::string class_of_points(const CodePoints& points) {
  std::string made;
  const std::vector<CodeRange>& ranges = points.ranges();
  if (ranges.size() == 1 && ranges[0].low == ranges[0].high) {
    append_point(ranges[0].low, made);
    return '"' + made + '"';
  }
  made = "[";
  for (const CodeRange& range : ranges) {
    append_point(range.low, made);
    if (range.high == range.low) continue;
    made += '-';
    append_point(range.high, made);
  }
  return made + ']';
}

std::string counts_of(const PatternNode& node) {
  if (!node.most) {
    if (node.fewest <= 1) return node.fewest == 0 ? "*" : "+";
    return fmt::format("{{{},}}", node.fewest);
  }
  if (node.fewest == 0 && *node.most == 1) return "?";
  return fmt::format("{{{},{}}}", node.fewest, *node.most);
}

std::string expressions_of(const std::vector<PatternNode>& parts, std::string_view between);

std::string expression_of(const PatternNode& node) {
  switch (node.kind) {
    case PatternKind::kSet:
      return class_of_points(node.points);
    case PatternKind::kSequence:
      return node.parts.empty() ? "\"\"" : expressions_of(node.parts, " ");
    case PatternKind::kChoice:
      return '(' + expressions_of(node.parts, " | ") + ')';
    case PatternKind::kRepeat: {
      if (node.most && *node.most == 0) return "\"\"";
      const std::string inner = expression_of(node.parts[0]);
      const bool alone =
          node.parts[0].kind == PatternKind::kSet || node.parts[0].kind == PatternKind::kChoice;
      return (alone ? inner : '(' + inner + ')') + counts_of(node);
    }
    default:  // An anchor that RegexCheck lets through holds for every text that must match whole.
      return "\"\"";
  }
}

std::string expressions_of(const std::vector<PatternNode>& parts, std::string_view between) {
  std::string made;
  for (const PatternNode& part : parts) {
    if (!made.empty()) made += between;
    made += expression_of(part);
  }
  return made;
}

}  // namespace

std::string regex_fault(std::string_view regex) {
  try {
    RegexCheck check(regex);
    check.visit(parse_pattern(regex), true, true);
    return check.fault();
  } catch (const Error& error) {
    return error.what();
  }
}

std::string regex_grammar(std::string_view regex) {
  return "root ::= " + expression_of(parse_pattern(regex)) + '\n';
}

}  // namespace bl
