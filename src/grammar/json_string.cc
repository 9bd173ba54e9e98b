#include "grammar/json_string.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "grammar/work_budget.h"

namespace bl {
namespace {

using Edge = Automaton::Edge;
using Ranges = std::vector<CodeRange>;  // of bytes
// A sequence of bytes, one set of them per position, and where it leads.
struct Path {
  std::vector<Ranges> bytes;
  int to;
};

// How numbers between `low` and `high` are written with `digits` digits of `bits` bits: splits the
// range into boxes, in each of which the digits vary independently of each other. Calls
// add(lows, highs) for each box.
template <class Add>
void split_digits(std::uint32_t low, std::uint32_t high, int digits, int bits, const Add& add) {
  std::vector<std::uint32_t> lows(static_cast<std::size_t>(digits));
  std::vector<std::uint32_t> highs(static_cast<std::size_t>(digits));
  const std::uint32_t mask = (1u << bits) - 1;
  while (low <= high) {
    // The largest aligned block that begins at `low` and ends within the range.
    int free = 0;
    while (free < digits) {
      const std::uint32_t block = 1u << (bits * (free + 1));
      if (low % block != 0 || high - low < block - 1) break;
      ++free;
    }
    // Within the digit above the free ones, the range may span several values.
    std::uint32_t count = 1;
    const std::uint32_t unit = 1u << (bits * free);
    if (free < digits) {
      const std::uint32_t digit = low >> (bits * free) & mask;
      while (digit + count <= mask && high - low >= unit * (count + 1) - 1) ++count;
    }
    const std::uint32_t last = free < digits ? low + unit * count - 1 : low + unit - 1;
    for (int i = 0; i < digits; ++i) {
      const int shift = bits * (digits - 1 - i);
      lows[static_cast<std::size_t>(i)] = low >> shift & mask;
      highs[static_cast<std::size_t>(i)] = last >> shift & mask;
    }
    add(lows, highs);
    if (last == 0xFFFFFFFF) return;
    low = last + 1;
  }
}

CodeRange byte_range(std::uint32_t low, std::uint32_t high) { return {low, high}; }

void add_utf8(char32_t low, char32_t high, int to, std::vector<Path>& paths) {
  struct Width {
    char32_t last;
    int tail;
    std::uint32_t lead;
  };
  constexpr Width kWidths[] = {
      {0x7F, 0, 0}, {0x7FF, 1, 0xC0}, {0xFFFF, 2, 0xE0}, {0x10FFFF, 3, 0xF0}};
  for (const Width& width : kWidths) {
    if (low > high) return;
    if (low > width.last) continue;
    const char32_t end = std::min(high, width.last);
    if (width.tail == 0) {
      paths.push_back({{{byte_range(low, end)}}, to});
    } else {
      split_digits(low, end, width.tail + 1, 6, [&](const auto& lows, const auto& highs) {
        Path path{.bytes = {{byte_range(width.lead | lows[0], width.lead | highs[0])}}, .to = to};
        for (std::size_t i = 1; i < lows.size(); ++i) {
          path.bytes.push_back({byte_range(0x80 | lows[i], 0x80 | highs[i])});
        }
        paths.push_back(std::move(path));
      });
    }
    low = end + 1;
  }
}

Ranges hex_digits(std::uint32_t low, std::uint32_t high) {
  Ranges ranges;
  if (low < 10) ranges.push_back({'0' + low, '0' + std::min<std::uint32_t>(high, 9)});
  if (high >= 10) {
    const std::uint32_t first = std::max<std::uint32_t>(low, 10) - 10;
    ranges.push_back({'A' + first, 'A' + high - 10});
    ranges.push_back({'a' + first, 'a' + high - 10});
  }
  return ranges;
}

void append_units(const std::vector<std::uint32_t>& lows, const std::vector<std::uint32_t>& highs,
                  Path& path) {
  path.bytes.push_back({byte_range('\\', '\\')});
  path.bytes.push_back({byte_range('u', 'u')});
  for (std::size_t i = 0; i < lows.size(); ++i) path.bytes.push_back(hex_digits(lows[i], highs[i]));
}

// \uXXXX for a range of UTF-16 units; `before` stands in front.
void add_units(char32_t low, char32_t high, const Path& before, std::vector<Path>& paths) {
  split_digits(low, high, 4, 4, [&](const auto& lows, const auto& highs) {
    Path path = before;
    append_units(lows, highs, path);
    paths.push_back(std::move(path));
  });
}

void add_unicode_escapes(char32_t low, char32_t high, int to, std::vector<Path>& paths) {
  if (low <= 0xFFFF)
    add_units(low, std::min<char32_t>(high, 0xFFFF), {.bytes = {}, .to = to}, paths);
  if (high < 0x10000) return;
  char32_t at = std::max<char32_t>(low, 0x10000);
  while (at <= high) {
    // All characters that share the upper half, or several upper halves with all lower halves.
    const char32_t offset = at - 0x10000;
    const char32_t upper = offset >> 10;
    char32_t upper_end = upper;
    char32_t end = std::min<char32_t>(high, 0x10000 + (upper << 10 | 0x3FF));
    if ((offset & 0x3FF) == 0 && end == (0x10000 + (upper << 10 | 0x3FF))) {
      upper_end = ((high - 0x10000 + 1) >> 10) - 1;
      end = 0x10000 + (upper_end << 10 | 0x3FF);
    }
    std::vector<Path> uppers;
    add_units(0xD800 + upper, 0xD800 + upper_end, {.bytes = {}, .to = to}, uppers);
    for (const Path& before : uppers) {
      add_units(0xDC00 + (offset & 0x3FF), 0xDC00 + ((end - 0x10000) & 0x3FF), before, paths);
    }
    at = end + 1;
  }
}

struct ShortEscape {
  char32_t point;
  char letter;
};
constexpr ShortEscape kShort[] = {{'"', '"'},  {'\\', '\\'}, {'/', '/'},  {'\b', 'b'},
                                  {'\f', 'f'}, {'\n', 'n'},  {'\r', 'r'}, {'\t', 't'}};

// All ways to write the characters of an edge within a JSON string.
void add_paths(const Edge& edge, StringEscapes escapes, std::vector<Path>& paths) {
  const auto each = [&](const CodePoints& allowed, const auto& add) {
    for (const CodeRange& range : CodePoints({{edge.low, edge.high}}).common(allowed).ranges()) {
      add(range.low, range.high);
    }
  };
  static const CodePoints kRaw = CodePoints({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).complement();
  static const CodePoints kEscaped =
      CodePoints({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x10FFFF}});
  each(kRaw, [&](char32_t low, char32_t high) { add_utf8(low, high, edge.to, paths); });
  each(escapes == StringEscapes::kAll ? CodePoints::all() : kEscaped,
       [&](char32_t low, char32_t high) { add_unicode_escapes(low, high, edge.to, paths); });
  for (const ShortEscape& escape : kShort) {
    if (escape.point < edge.low || escape.point > edge.high) continue;
    const auto letter = static_cast<char32_t>(escape.letter);
    paths.push_back({{{byte_range('\\', '\\')}, {byte_range(letter, letter)}}, edge.to});
  }
}

class StringMaker {
 public:
  StringMaker(const Automaton& texts, StringEscapes escapes) : texts_(texts), escapes_(escapes) {}

  Automaton run() {
    // State 0 reads the opening quote; 1 is the end; the states of `texts` follow.
    const std::size_t count = texts_.states.size();
    result_.states.resize(count + 2);
    result_.states[1].accepts = true;
    if (count > 0) result_.states[0].edges.push_back({'"', '"', 2});
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Path> paths;
      for (const Edge& edge : texts_.states[i].edges) {
        add_paths({edge.low, edge.high, edge.to + 2}, escapes_, paths);
      }
      if (texts_.states[i].accepts) paths.push_back({{{byte_range('"', '"')}}, 1});
      result_.states[i + 2].edges = edges_of(paths, 0);
    }
    return std::move(result_);
  }

 private:
  // The edges for paths that agree up to position `depth`.
  std::vector<Edge> edges_of(const std::vector<Path>& paths, std::size_t depth) {
    spend_work(20 * paths.size());
    std::vector<char32_t> cuts;
    for (const Path& path : paths) {
      for (const CodeRange& range : path.bytes[depth]) {
        cuts.push_back(range.low);
        cuts.push_back(range.high + 1);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<Edge> edges;
    std::map<std::vector<std::size_t>, int> targets;
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::vector<std::size_t> here;
      for (std::size_t p = 0; p < paths.size(); ++p) {
        for (const CodeRange& range : paths[p].bytes[depth]) {
          if (range.low <= cuts[c] && cuts[c] <= range.high) here.push_back(p);
        }
      }
      if (here.empty()) continue;
      const auto [found, added] = targets.try_emplace(here, 0);
      if (added) found->second = target_of(paths, here, depth + 1);
      if (!edges.empty() && edges.back().to == found->second && edges.back().high + 1 == cuts[c]) {
        edges.back().high = cuts[c + 1] - 1;
      } else {
        edges.push_back({cuts[c], cuts[c + 1] - 1, found->second});
      }
    }
    return edges;
  }

  int target_of(const std::vector<Path>& paths, const std::vector<std::size_t>& here,
                std::size_t depth) {
    // A path is never the beginning of another one, since code points and escapes are prefix-free.
    if (paths[here[0]].bytes.size() == depth) return paths[here[0]].to;
    std::vector<Path> rest;
    for (const std::size_t p : here) rest.push_back(paths[p]);
    std::vector<Edge> edges = edges_of(rest, depth);
    std::vector<std::pair<std::pair<char32_t, char32_t>, int>> key;
    for (const Edge& edge : edges) key.push_back({{edge.low, edge.high}, edge.to});
    const auto [found, added] =
        shared_.try_emplace(std::move(key), static_cast<int>(result_.states.size()));
    if (added) result_.states.push_back({.edges = std::move(edges), .accepts = false});
    return found->second;
  }

  const Automaton& texts_;
  StringEscapes escapes_;
  Automaton result_;
  // States inside characters and escapes, by their edges.
  std::map<std::vector<std::pair<std::pair<char32_t, char32_t>, int>>, int> shared_;
};

}  // namespace

Automaton json_strings(const Automaton& texts, StringEscapes escapes) {
  return StringMaker(texts, escapes).run();
}

}  // namespace bl
