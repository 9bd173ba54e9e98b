#include "text/jinja/text_layout.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/dict.h"
#include "text/jinja/operations.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_form.h"

namespace bl::jinja {
namespace {

constexpr std::string_view kWrapSpace = "\t\n\v\f\r ";

bool is_space(char c) { return kWrapSpace.find(c) != std::string_view::npos; }

// Returns where a word may break after a hyphen: between letters ("well-known"), as in textwrap.
std::size_t hyphen_break(std::string_view word, std::size_t from) {
  for (std::size_t i = from; i + 1 < word.size(); ++i) {
    if (word[i] != '-' || i < 1) continue;
    std::size_t before = i;
    const char32_t previous = code_point_before(word, before).value;
    const char32_t next = code_point_at(word, i + 1).value;
    const bool letters = is_python_alpha(previous) && is_python_alpha(next);
    if (!letters) continue;
    before -= code_point_before(word, before).size;
    const bool two = before > 0 && is_python_word(code_point_before(word, before).value);
    if (two) return i + 1;
  }
  return word.size();
}

// Cuts a line into runs of white space and words, and the words where they may break.
std::vector<std::string_view> chunks_of(std::string_view line, bool break_on_hyphens) {
  std::vector<std::string_view> chunks;
  for (std::size_t begin = 0; begin < line.size();) {
    std::size_t end = begin;
    const bool space = is_space(line[begin]);
    while (end < line.size() && is_space(line[end]) == space) ++end;
    std::string_view word = line.substr(begin, end - begin);
    begin = end;
    while (break_on_hyphens && !space) {
      const std::size_t cut = hyphen_break(word, 0);
      if (cut >= word.size()) break;
      chunks.push_back(word.substr(0, cut));
      word.remove_prefix(cut);
    }
    chunks.push_back(word);
  }
  return chunks;
}

class PrettyPrinter {
 public:
  PrettyPrinter(Runtime& rt, std::string& out) : rt_(rt), out_(out) {}

  // `indent` is the value's column, `allowance` the number of characters that follow on its last
  // line.
  void print(const Value& value, std::size_t indent, std::size_t allowance) {
    rt_.step();
    rt_.check_size(out_.size());
    const std::string one_line = flat(value);
    if (indent + allowance + count_code_points(one_line) <= kWidth) {
      out_ += one_line;
    } else if (value.is(Kind::kDict) && value.dict->size > 0) {
      print_dict(value, indent, allowance);
    } else if (value.is_sequence() && value.size > 0) {
      print_list(value, indent, allowance);
    } else {
      out_ += one_line;
    }
  }

 private:
  static constexpr std::size_t kWidth = 80;

  std::vector<SortItem> sorted_entries(const Dict& dict) {
    std::vector<SortItem> entries;
    for (const DictEntry& entry : dict.list()) entries.push_back({entry.key, entry.value});
    const bool texts = std::all_of(entries.begin(), entries.end(),
                                   [](const SortItem& e) { return e.key.is_string(); });
    const bool numbers = std::all_of(entries.begin(), entries.end(),
                                     [](const SortItem& e) { return e.key.is_number(); });
    if (texts || numbers) sort_items(rt_, entries, false);
    return entries;
  }

  std::string flat(const Value& value) {
    rt_.step();
    std::string out;
    if (value.is(Kind::kDict)) {
      for (const SortItem& entry : sorted_entries(*value.dict)) {
        out += (out.empty() ? "{" : ", ") + flat(entry.key) + ": " + flat(entry.item);
        rt_.check_size(out.size());
      }
      return out.empty() ? "{}" : out + "}";
    }
    if (value.is_sequence()) {
      const bool list = value.is(Kind::kList);
      for (const Value& item : value.list()) {
        out += (out.empty() ? (list ? "[" : "(") : ", ") + flat(item);
        rt_.check_size(out.size());
      }
      if (out.empty()) return list ? "[]" : "()";
      return out + (list ? "]" : value.size == 1 ? ",)" : ")");
    }
    append_repr(rt_, value, out);
    return out;
  }

  void new_line(std::size_t indent) {
    out_ += ",\n";
    out_.append(indent, ' ');
    rt_.check_size(out_.size());
  }

  void print_dict(const Value& value, std::size_t indent, std::size_t allowance) {
    const std::vector<SortItem> entries = sorted_entries(*value.dict);
    out_.push_back('{');
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) new_line(indent + 1);
      const std::string key = flat(entries[i].key);
      out_ += key + ": ";
      const bool last = i + 1 == entries.size();
      print(entries[i].item, indent + 1 + count_code_points(key) + 2, last ? allowance + 1 : 1);
    }
    out_.push_back('}');
  }

  void print_list(const Value& value, std::size_t indent, std::size_t allowance) {
    const bool list = value.is(Kind::kList);
    const bool single_tuple = !list && value.size == 1;
    out_.push_back(list ? '[' : '(');
    for (std::size_t i = 0; i < value.size; ++i) {
      if (i > 0) new_line(indent + 1);
      const bool last = i + 1 == value.size;
      print(value.items[i], indent + 1, last ? allowance + (single_tuple ? 2 : 1) : 1);
    }
    out_ += list ? "]" : single_tuple ? ",)" : ")";
  }

  Runtime& rt_;
  std::string& out_;
};

}  // namespace

std::vector<std::string> wrap_line(Runtime& rt, std::string_view line, const WrapStyle& style) {
  rt.step(line.size() / 4);
  const auto width = static_cast<std::size_t>(style.width);
  std::vector<std::string_view> chunks = chunks_of(line, style.break_on_hyphens);
  std::reverse(chunks.begin(), chunks.end());
  std::vector<std::string> lines;
  while (!chunks.empty()) {
    if (!lines.empty() && is_space(chunks.back()[0])) {
      chunks.pop_back();
      if (chunks.empty()) break;
    }
    std::vector<std::string_view> row;
    std::size_t length = 0;
    while (!chunks.empty()) {
      const std::size_t size = count_code_points(chunks.back());
      if (length + size > width) break;
      length += size;
      row.push_back(chunks.back());
      chunks.pop_back();
    }
    if (!chunks.empty() && count_code_points(chunks.back()) > width) {
      // A word that is longer than a line is cut, or stands alone on its line.
      if (style.break_long_words) {
        const std::size_t room = std::max<std::size_t>(1, width - length);
        std::size_t cut = offset_of(chunks.back(), room);
        if (style.break_on_hyphens) {
          const std::string_view head = chunks.back().substr(0, cut);
          const std::size_t hyphen = head.rfind('-');
          const bool word_before = hyphen != std::string_view::npos && hyphen > 0 &&
                                   head.find_first_not_of('-') < hyphen;
          if (word_before) cut = hyphen + 1;
        }
        row.push_back(chunks.back().substr(0, cut));
        chunks.back().remove_prefix(cut);
        if (chunks.back().empty()) chunks.pop_back();
      } else if (row.empty()) {
        row.push_back(chunks.back());
        chunks.pop_back();
      }
    }
    if (!row.empty() && is_space(row.back()[0])) row.pop_back();
    if (row.empty()) continue;
    std::string text;
    for (const std::string_view chunk : row) text += chunk;
    lines.push_back(std::move(text));
  }
  return lines;
}

void append_pretty(Runtime& rt, const Value& value, std::string& out) {
  PrettyPrinter(rt, out).print(value, 0, 0);
}

Value keywords_as_dict(Runtime& rt, std::span<const Keyword> keywords) {
  DictBuilder builder(rt, keywords.size());
  for (const Keyword& keyword : keywords) builder.set(Value::string(keyword.name), keyword.value);
  return builder.finish();
}

}  // namespace bl::jinja
