#include "help_layout.h"

#include <algorithm>
#include <vector>

#include "base/terminal.h"
#include "base/utf8.h"

namespace bl {
namespace {

constexpr std::size_t kNarrowest = 40;  // in less, columns are of no use
constexpr std::size_t kWithoutTerminal = 100;

std::vector<std::string_view> split_words(std::string_view text, bool keep_brackets) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ' ';
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c != ' ' || (keep_brackets && depth > 0 && at < text.size())) continue;
    if (at > begin) words.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  return words;
}

}  // namespace

std::size_t help_width() {
  if (!is_terminal(Stream::kStdout)) return kWithoutTerminal;
  return std::max(kNarrowest, static_cast<std::size_t>(terminal_width(Stream::kStdout)));
}

std::size_t columns_of(std::string_view text) { return count_code_points(text); }

std::string wrapped(std::string_view text, const TextBlock& block) {
  std::string out;
  std::size_t column = block.first;
  bool is_first = true;
  for (const std::string_view word : split_words(text, block.keep_brackets)) {
    const std::size_t size = columns_of(word);
    if (!is_first && column + 1 + size > block.width) {
      out += "\n" + std::string(block.indent, ' ');
      column = block.indent;
    } else if (!is_first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += size;
    is_first = false;
  }
  return out;
}

}  // namespace bl
