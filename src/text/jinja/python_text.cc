#include "text/jinja/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "base/utf8.h"

namespace bl::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_one_of(char32_t c, std::string_view chars) {
  for (std::size_t i = 0; i < chars.size();) {
    const CodePoint candidate = code_point_at(chars, i);
    if (candidate.value == c) return true;
    i += candidate.size;
  }
  return false;
}

template <class Removed>
std::string_view strip_while(std::string_view text, StripSide side, const Removed& removed) {
  if (side != StripSide::kRight) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      const CodePoint c = code_point_at(text, begin);
      if (!removed(c.value)) break;
      begin += c.size;
    }
    text.remove_prefix(begin);
  }
  if (side != StripSide::kLeft) {
    while (!text.empty()) {
      const CodePoint c = code_point_before(text, text.size());
      if (!removed(c.value)) break;
      text.remove_suffix(c.size);
    }
  }
  return text;
}

}  // namespace

bool is_python_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_python_alpha(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_python_decimal(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_python_digit(char32_t c) {
  if (is_python_decimal(c)) return true;
  // Numeric_Type=Digit: superscripts, subscripts, circled and otherwise decorated digits.
  struct Run {
    char32_t first, last;
  };
  constexpr Run kRuns[] = {
      {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
      {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
      {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};
  return std::any_of(std::begin(kRuns), std::end(kRuns),
                     [c](const Run& run) { return c >= run.first && c <= run.last; });
}

bool is_python_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto k = category(c);
  if (k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO) {
    return true;
  }
  // The ideographs that are numerals.
  constexpr std::u32string_view kNumerals =
      U"一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卄卅卌参參叁叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百"
      U"肆貮貳贰阡陆陌陸零〇";
  return kNumerals.find(c) != std::u32string_view::npos;
}

bool is_python_word(char32_t c) {
  return c == '_' || is_python_alpha(c) ||
         (c >= 0x80 ? is_python_numeric(c) : is_python_decimal(c));
}

bool is_python_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_upper_case(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0 && !is_title_case(c);
}
bool is_title_case(char32_t c) { return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT; }
bool is_lower_case(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool is_cased(char32_t c) { return is_upper_case(c) || is_lower_case(c) || is_title_case(c); }

int decimal_value(char32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (!is_python_decimal(c)) return -1;
  // Decimal digits come in runs of ten that begin at their zero. The mathematical ones follow each
  // other without a gap.
  if (c >= 0x1d7ce && c <= 0x1d7ff) return static_cast<int>((c - 0x1d7ce) % 10);
  char32_t zero = c;
  while (c - zero < 9 && is_python_decimal(zero - 1)) --zero;
  return static_cast<int>(c - zero);
}

std::string_view python_strip(std::string_view text, StripSide side) {
  return strip_while(text, side, is_python_space);
}

std::string_view python_strip(std::string_view text, std::string_view chars, StripSide side) {
  return strip_while(text, side, [chars](char32_t c) { return is_one_of(c, chars); });
}

bool is_ascii(std::string_view text) {
  unsigned char seen = 0;
  for (const char c : text) seen = static_cast<unsigned char>(seen | static_cast<unsigned char>(c));
  return seen < 0x80;
}

std::size_t offset_of(std::string_view text, std::size_t index) {
  std::size_t offset = 0;
  while (index > 0 && offset < text.size()) {
    offset += utf8_size(text[offset]);
    --index;
  }
  return offset;
}

std::string_view code_points(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin >= end) return {};
  const std::size_t first = offset_of(text, begin);
  const std::string_view rest = text.substr(first);
  return rest.substr(0, offset_of(rest, end - begin));
}

std::size_t find_text(std::string_view text, std::string_view what, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (what.empty()) return from;
  if (what.size() > text.size() - from) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last_text(std::string_view text, std::string_view what) {
  constexpr std::size_t kShort = 32;
  if (what.size() <= kShort) return text.rfind(what);
  // Searching the mirrored text keeps long needles linear. Byte matches in UTF-8 are character
  // matches.
  const std::string mirrored(text.rbegin(), text.rend());
  const std::string needle(what.rbegin(), what.rend());
  const std::size_t found = find_text(mirrored, needle);
  return found == std::string_view::npos ? found : text.size() - found - what.size();
}

std::size_t line_end_size(std::string_view text, std::size_t offset) {
  const CodePoint c = code_point_at(text, offset);
  switch (c.value) {
    case '\r':
      return offset + 1 < text.size() && text[offset + 1] == '\n' ? 2 : 1;
    case '\n':
    case '\v':
    case '\f':
    case 0x1c:
    case 0x1d:
    case 0x1e:
      return 1;
    case 0x85:
    case 0x2028:
    case 0x2029:
      return c.size;
    default:
      return 0;
  }
}

}  // namespace bl::jinja
