#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"

namespace bl {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_letter(utf8proc_category_t c) {
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

// Alphabetic characters that are neither letters nor marks nor letter numbers: the circled and
// squared letters of Other_Alphabetic.
bool is_enclosed_letter(char32_t c) {
  return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
         (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

struct Range {
  char32_t first, last;
};

// Characters that got a decomposition or a combining class after Unicode 9. The normal forms of the
// reference use tables of that version, so vocabularies were trained on text that has these
// characters as written.
constexpr std::array kAfterUnicode9 = {
    Range{0x7fd, 0x7fd},     Range{0x898, 0x89f},     Range{0x8ca, 0x8d3},
    Range{0x9fe, 0x9fe},     Range{0xc3c, 0xc3c},     Range{0xd3b, 0xd3c},
    Range{0xeba, 0xeba},     Range{0x1715, 0x1715},   Range{0x1abf, 0x1ace},
    Range{0x1df6, 0x1dfa},   Range{0x32ff, 0x32ff},   Range{0xa7f2, 0xa7f4},
    Range{0xa82c, 0xa82c},   Range{0xab69, 0xab69},   Range{0x10781, 0x107ba},
    Range{0x10d24, 0x10d27}, Range{0x10eab, 0x10eac}, Range{0x10efd, 0x10eff},
    Range{0x10f46, 0x10f50}, Range{0x10f82, 0x10f85}, Range{0x11070, 0x11070},
    Range{0x1133b, 0x1133b}, Range{0x1145e, 0x1145e}, Range{0x11839, 0x1183a},
    Range{0x11938, 0x11938}, Range{0x1193d, 0x1193e}, Range{0x11943, 0x11943},
    Range{0x119e0, 0x119e0}, Range{0x11a34, 0x11a34}, Range{0x11a47, 0x11a47},
    Range{0x11a99, 0x11a99}, Range{0x11d42, 0x11d42}, Range{0x11d44, 0x11d45},
    Range{0x11d97, 0x11d97}, Range{0x11f41, 0x11f42}, Range{0x16ff0, 0x16ff1},
    Range{0x1e030, 0x1e06d}, Range{0x1e08f, 0x1e08f}, Range{0x1e130, 0x1e136},
    Range{0x1e2ae, 0x1e2ae}, Range{0x1e2ec, 0x1e2ef}, Range{0x1e4ec, 0x1e4ef},
    Range{0x1f16c, 0x1f16c}, Range{0x1fbf0, 0x1fbf9},
};

bool is_after_unicode_9(char32_t c) {
  if (c < kAfterUnicode9.front().first) return false;
  const auto range =
      std::lower_bound(kAfterUnicode9.begin(), kAfterUnicode9.end(), c,
                       [](const Range& r, char32_t value) { return r.last < value; });
  return range != kAfterUnicode9.end() && c >= range->first;
}

// Appends the decomposition of `c` to `out`.
void decompose(char32_t c, bool compatible, std::vector<utf8proc_int32_t>& out) {
  if (is_after_unicode_9(c)) {
    out.push_back(static_cast<utf8proc_int32_t>(c));
    return;
  }
  std::array<utf8proc_int32_t, 32> parts;
  int boundary = 0;
  const int options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0);
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                              static_cast<utf8proc_option_t>(options), &boundary);
  BL_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
  out.insert(out.end(), parts.begin(), parts.begin() + count);
}

int combining_class(utf8proc_int32_t c) {
  if (is_after_unicode_9(static_cast<char32_t>(c))) return 0;
  return utf8proc_get_property(c)->combining_class;
}

// Canonical ordering (UAX 15): sorts each run of characters with a non-zero combining class by that
// class, stably.
void order_marks(std::vector<utf8proc_int32_t>& text) {
  std::size_t i = 0;
  while (i < text.size()) {
    if (combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(i),
                     text.begin() + static_cast<std::ptrdiff_t>(end),
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

}  // namespace

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_number(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_other(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_CC;
}

bool is_mark(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_word_character(char32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  const auto kind = category(c);
  return is_letter(kind) || is_mark(c) || kind == UTF8PROC_CATEGORY_ND ||
         kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_PC || c == 0x200c ||
         c == 0x200d || is_enclosed_letter(c);
}

void append_lower_case(char32_t c, std::string& out) {
  if (c == 0x130) {  // the one character whose lower case is two (SpecialCasing.txt)
    out.append("i\xcc\x87");
    return;
  }
  append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

std::vector<char32_t> case_variants(char32_t c) {
  const auto simple = [](char32_t of, utf8proc_int32_t (*to)(utf8proc_int32_t)) {
    return static_cast<char32_t>(to(static_cast<utf8proc_int32_t>(of)));
  };
  const char32_t upper = simple(c, utf8proc_toupper);
  std::vector<char32_t> variants{c, upper, simple(c, utf8proc_totitle), simple(c, utf8proc_tolower),
                                 simple(upper, utf8proc_tolower)};
  std::sort(variants.begin(), variants.end());
  variants.erase(std::unique(variants.begin(), variants.end()), variants.end());
  return variants;
}

std::string normalize_unicode(std::string_view text, NormalForm form) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  // A character below `safe` is its own normal form and composes with nothing before it.
  const char32_t safe = form == NormalForm::kNfc ? 0x300 : 0xa0;
  const auto is_safe = [&](char32_t c) { return c < safe || is_after_unicode_9(c); };
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  std::vector<utf8proc_int32_t> run;
  std::size_t offset = 0;
  while (offset < text.size()) {
    // Characters that may change together reach from the last safe one before an unsafe one to the
    // next safe one.
    std::size_t begin = offset;
    std::size_t last_safe = offset;
    while (offset < text.size()) {
      const CodePoint c = code_point_at(text, offset);
      if (!is_safe(c.value)) break;
      last_safe = offset;
      offset += c.size;
    }
    if (offset == text.size()) {
      out.append(text.substr(begin));
      break;
    }
    out.append(text.substr(begin, last_safe - begin));
    run.clear();
    offset = last_safe;
    bool first = true;
    while (offset < text.size()) {
      const CodePoint c = code_point_at(text, offset);
      if (is_safe(c.value) && !first) break;
      first = false;
      decompose(c.value, compatible, run);
      offset += c.size;
    }
    order_marks(run);
    utf8proc_ssize_t size = static_cast<utf8proc_ssize_t>(run.size());
    if (compose) {
      size = utf8proc_normalize_utf32(
          run.data(), size, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
      BL_CHECK(size >= 0);
    }
    for (utf8proc_ssize_t i = 0; i < size; ++i) {
      append_utf8(static_cast<char32_t>(run[static_cast<std::size_t>(i)]), out);
    }
  }
  return out;
}

std::size_t grapheme_end(std::string_view text, std::size_t begin) {
  CodePoint c = code_point_at(text, begin);
  std::size_t end = begin + c.size;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const CodePoint next = code_point_at(text, end);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state)) {
      break;
    }
    c = next;
    end += c.size;
  }
  return end;
}

}  // namespace bl
