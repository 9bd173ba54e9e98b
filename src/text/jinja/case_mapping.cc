// Full case mappings: the simple ones of utf8proc, plus the unconditional rows of Unicode's
// SpecialCasing.txt and its rule for the final sigma.

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "base/utf8.h"
#include "text/jinja/python_text.h"

namespace bl::jinja {
namespace {

struct SpecialUpper {
  char16_t from;
  std::array<char16_t, 3> to;  // terminated by 0 if shorter
};

// In ascending order. U+1F80 to U+1FAF follow a rule and are not listed.
constexpr SpecialUpper kSpecialUpper[] = {
    {0x00df, {0x53, 0x53}},          {0x0149, {0x2bc, 0x4e}},
    {0x01f0, {0x4a, 0x30c}},         {0x0390, {0x399, 0x308, 0x301}},
    {0x03b0, {0x3a5, 0x308, 0x301}}, {0x0587, {0x535, 0x552}},
    {0x1e96, {0x48, 0x331}},         {0x1e97, {0x54, 0x308}},
    {0x1e98, {0x57, 0x30a}},         {0x1e99, {0x59, 0x30a}},
    {0x1e9a, {0x41, 0x2be}},         {0x1f50, {0x3a5, 0x313}},
    {0x1f52, {0x3a5, 0x313, 0x300}}, {0x1f54, {0x3a5, 0x313, 0x301}},
    {0x1f56, {0x3a5, 0x313, 0x342}}, {0x1fb2, {0x1fba, 0x399}},
    {0x1fb3, {0x391, 0x399}},        {0x1fb4, {0x386, 0x399}},
    {0x1fb6, {0x391, 0x342}},        {0x1fb7, {0x391, 0x342, 0x399}},
    {0x1fbc, {0x391, 0x399}},        {0x1fc2, {0x1fca, 0x399}},
    {0x1fc3, {0x397, 0x399}},        {0x1fc4, {0x389, 0x399}},
    {0x1fc6, {0x397, 0x342}},        {0x1fc7, {0x397, 0x342, 0x399}},
    {0x1fcc, {0x397, 0x399}},        {0x1fd2, {0x399, 0x308, 0x300}},
    {0x1fd3, {0x399, 0x308, 0x301}}, {0x1fd6, {0x399, 0x342}},
    {0x1fd7, {0x399, 0x308, 0x342}}, {0x1fe2, {0x3a5, 0x308, 0x300}},
    {0x1fe3, {0x3a5, 0x308, 0x301}}, {0x1fe4, {0x3a1, 0x313}},
    {0x1fe6, {0x3a5, 0x342}},        {0x1fe7, {0x3a5, 0x308, 0x342}},
    {0x1ff2, {0x1ffa, 0x399}},       {0x1ff3, {0x3a9, 0x399}},
    {0x1ff4, {0x38f, 0x399}},        {0x1ff6, {0x3a9, 0x342}},
    {0x1ff7, {0x3a9, 0x342, 0x399}}, {0x1ffc, {0x3a9, 0x399}},
    {0xfb00, {0x46, 0x46}},          {0xfb01, {0x46, 0x49}},
    {0xfb02, {0x46, 0x4c}},          {0xfb03, {0x46, 0x46, 0x49}},
    {0xfb04, {0x46, 0x46, 0x4c}},    {0xfb05, {0x53, 0x54}},
    {0xfb06, {0x53, 0x54}},          {0xfb13, {0x544, 0x546}},
    {0xfb14, {0x544, 0x535}},        {0xfb15, {0x544, 0x53b}},
    {0xfb16, {0x54e, 0x546}},        {0xfb17, {0x544, 0x53d}},
};

char32_t simple_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t simple_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t simple_title(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

// Returns the upper case of `c` if it is longer than one character; else to[0] is 0.
std::array<char16_t, 3> special_upper(char32_t c) {
  if (c < 0xdf || c > 0xfb17) return {};
  if (c >= 0x1f80 && c <= 0x1faf) {
    constexpr std::array<char16_t, 3> kRows = {0x1f08, 0x1f28, 0x1f68};
    return {static_cast<char16_t>(kRows[(c - 0x1f80) >> 4] + (c & 7)), 0x399, 0};
  }
  const auto* row = std::lower_bound(
      std::begin(kSpecialUpper), std::end(kSpecialUpper), c,
      [](const SpecialUpper& entry, char32_t value) { return entry.from < value; });
  return row != std::end(kSpecialUpper) && row->from == c ? row->to : std::array<char16_t, 3>{};
}

void append_upper(char32_t c, std::string& out) {
  const auto special = special_upper(c);
  if (special[0] == 0) return append_utf8(simple_upper(c), out);
  for (const char16_t part : special) {
    if (part != 0) append_utf8(part, out);
  }
}

void append_title(char32_t c, std::string& out) {
  const auto special = special_upper(c);
  const char32_t single = simple_title(c);
  if (special[0] == 0 || is_title_case(single)) return append_utf8(single, out);
  append_utf8(special[0], out);
  for (std::size_t i = 1; i < special.size() && special[i] != 0; ++i) {
    // A following iota becomes a subscript, other letters become small; only U+02BC N keeps its N.
    const char32_t rest = special[i] == 0x399 ? 0x345
                          : c == 0x149        ? special[i]
                                              : simple_lower(special[i]);
    append_utf8(rest, out);
  }
}

bool is_case_ignorable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:  // MidLetter, MidNumLet and Single_Quote of Word_Break
      return c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x387 || c == 0x55f ||
             c == 0x5f4 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027 ||
             c == 0xfe13 || c == 0xfe52 || c == 0xfe55 || c == 0xff07 || c == 0xff0e || c == 0xff1a;
  }
}

// Whether the sigma at [offset, end) ends a word (Final_Sigma in SpecialCasing.txt).
bool is_final_sigma(std::string_view text, std::size_t offset, std::size_t end) {
  bool letter_before = false;
  while (offset > 0) {
    const CodePoint c = code_point_before(text, offset);
    offset -= c.size;
    if (is_case_ignorable(c.value)) continue;
    letter_before = is_cased(c.value);
    break;
  }
  if (!letter_before) return false;
  while (end < text.size()) {
    const CodePoint c = code_point_at(text, end);
    end += c.size;
    if (!is_case_ignorable(c.value)) return !is_cased(c.value);
  }
  return true;
}

void append_lower(std::string_view text, std::size_t offset, CodePoint c, std::string& out) {
  if (c.value == 0x3a3) {
    append_utf8(is_final_sigma(text, offset, offset + c.size) ? 0x3c2 : 0x3c3, out);
  } else if (c.value == 0x130) {
    out += "i\xcc\x87";
  } else {
    append_utf8(simple_lower(c.value), out);
  }
}

char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Calls each(offset, code point) for every character.
template <class Each>
void for_each_code_point(std::string_view text, const Each& each) {
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    each(i, c);
    i += c.size;
  }
}

}  // namespace

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (is_ascii(text)) {
    for (const char c : text) out.push_back(ascii_upper(c));
    return out;
  }
  for_each_code_point(text, [&](std::size_t, CodePoint c) { append_upper(c.value, out); });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (is_ascii(text)) {
    for (const char c : text) out.push_back(ascii_lower(c));
    return out;
  }
  for_each_code_point(text, [&](std::size_t i, CodePoint c) { append_lower(text, i, c, out); });
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each_code_point(text, [&](std::size_t i, CodePoint c) {
    if (in_word) {
      append_lower(text, i, c, out);
    } else {
      append_title(c.value, out);
    }
    in_word = is_cased(c.value);
  });
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](std::size_t i, CodePoint c) {
    if (i == 0) {
      append_title(c.value, out);
    } else {
      append_lower(text, i, c, out);
    }
  });
  return out;
}

std::string to_swapped_case(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](std::size_t i, CodePoint c) {
    if (is_upper_case(c.value)) {
      append_lower(text, i, c, out);
    } else if (is_lower_case(c.value)) {
      append_upper(c.value, out);
    } else {
      append_utf8(c.value, out);
    }
  });
  return out;
}

std::string to_folded_case(std::string_view text) {
  std::string out;
  for_each_code_point(text, [&](std::size_t, CodePoint c) {
    std::array<utf8proc_int32_t, 8> folded{};
    int last_boundary = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(c.value), folded.data(),
        static_cast<utf8proc_ssize_t>(folded.size()), UTF8PROC_CASEFOLD, &last_boundary);
    for (utf8proc_ssize_t i = 0; i < count && i < 8; ++i) {
      append_utf8(static_cast<char32_t>(folded[static_cast<std::size_t>(i)]), out);
    }
  });
  return out;
}

}  // namespace bl::jinja
