#include "grammar/code_points.h"

#include <algorithm>

namespace bl {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr CodeRange kSurrogates{0xD800, 0xDFFF};

}  // namespace

CodePoints::CodePoints(std::vector<CodeRange> ranges) {
  std::vector<CodeRange> valid;
  for (const CodeRange& range : ranges) {
    const char32_t high = std::min(range.high, kLast);
    if (range.low < kSurrogates.low && range.low <= high) {
      valid.push_back({range.low, std::min<char32_t>(high, kSurrogates.low - 1)});
    }
    if (high > kSurrogates.high && range.low <= high) {
      valid.push_back({std::max<char32_t>(range.low, kSurrogates.high + 1), high});
    }
  }
  std::sort(valid.begin(), valid.end(),
            [](const CodeRange& a, const CodeRange& b) { return a.low < b.low; });
  for (const CodeRange& range : valid) {
    if (!ranges_.empty() && range.low <= ranges_.back().high + 1) {
      ranges_.back().high = std::max(ranges_.back().high, range.high);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePoints CodePoints::all() { return CodePoints({{0, kLast}}); }

bool CodePoints::contains(char32_t point) const {
  const auto found =
      std::upper_bound(ranges_.begin(), ranges_.end(), point,
                       [](char32_t at, const CodeRange& range) { return at < range.low; });
  return found != ranges_.begin() && point <= std::prev(found)->high;
}

CodePoints CodePoints::united(const CodePoints& other) const {
  std::vector<CodeRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePoints(std::move(both));
}

CodePoints CodePoints::complement() const {
  std::vector<CodeRange> gaps;
  char32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.low > next) gaps.push_back({next, range.low - 1});
    next = range.high + 1;
  }
  if (next <= kLast) gaps.push_back({next, kLast});
  return CodePoints(std::move(gaps));
}

CodePoints CodePoints::common(const CodePoints& other) const {
  return complement().united(other.complement()).complement();
}

}  // namespace bl
