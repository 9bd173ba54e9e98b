#include "text/byte_trie.h"

#include <algorithm>

namespace bl {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Built breadth first: a node is the range of entries whose first `depth` bytes are its path.
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> queue{{0, entries.size(), 0}};
  for (std::size_t node = 0; node < queue.size(); ++node) {
    Range range = queue[node];
    std::int32_t value = kNone;
    while (range.begin < range.end && entries[range.begin].first.size() == range.depth) {
      if (range.depth > 0) value = entries[range.begin].second;
      ++range.begin;
    }
    values_.push_back(value);
    children_.push_back(static_cast<std::uint32_t>(labels_.size()));
    while (range.begin < range.end) {
      const char label = entries[range.begin].first[range.depth];
      std::size_t end = range.begin + 1;
      while (end < range.end && entries[end].first[range.depth] == label) ++end;
      labels_.push_back(label);
      queue.push_back({range.begin, end, range.depth + 1});
      range.begin = end;
    }
  }
  children_.push_back(static_cast<std::uint32_t>(labels_.size()));
}

ByteTrie::Match ByteTrie::longest(std::string_view text, std::size_t offset) const {
  Match match;
  if (empty()) return match;
  int node = kRoot;
  for (std::size_t i = offset; i < text.size(); ++i) {
    node = step(node, text[i]);
    if (node == kNone) break;
    if (value(node) != kNone) match = {i + 1 - offset, value(node)};
  }
  return match;
}

}  // namespace bl
