#pragma once
#include <utility>
#include <vector>

namespace bl {

struct CodeRange {
  char32_t low;
  char32_t high;  // inclusive

  bool operator==(const CodeRange&) const = default;
};

// A set of Unicode scalar values: U+0000 to U+10FFFF without the surrogates, which UTF-8 cannot
// hold. Ranges are sorted, disjoint and not adjacent.
class CodePoints {
 public:
  CodePoints() = default;
  explicit CodePoints(std::vector<CodeRange> ranges);
  static CodePoints all();
  static CodePoints one(char32_t point) { return CodePoints({{point, point}}); }

  const std::vector<CodeRange>& ranges() const& { return ranges_; }
  std::vector<CodeRange> ranges() && { return std::move(ranges_); }
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t point) const;

  CodePoints united(const CodePoints& other) const;
  CodePoints complement() const;
  CodePoints common(const CodePoints& other) const;

 private:
  std::vector<CodeRange> ranges_;
};

}  // namespace bl
