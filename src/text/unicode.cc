#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "text/utf8.h"

namespace bl {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_letter(utf8proc_category_t c) {
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

// Alphabetic characters that are neither letters, marks nor letter numbers: the circled and squared
// letters of Other_Alphabetic.
bool is_enclosed_letter(char32_t c) {
  return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
         (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

// Puts the decomposition of `c` at the end of `out`.
void decompose(char32_t c, bool compatible, std::vector<utf8proc_int32_t>& out) {
  std::array<utf8proc_int32_t, 32> parts;
  int boundary = 0;
  const int options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0);
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                              static_cast<utf8proc_option_t>(options), &boundary);
  BL_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
  out.insert(out.end(), parts.begin(), parts.begin() + count);
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// Canonical ordering: each run of characters of a non-zero class is sorted by it, stably.
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

// True for characters that no normal form changes and that no neighbour combines with.
bool is_inert(char32_t c) { return c < 0xa0; }

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
  return kind == UTF8PROC_CATEGORY_CN || kind >= UTF8PROC_CATEGORY_CC;
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

std::string normalize_unicode(std::string_view text, NormalForm form) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  // Below this a character is its own composed canonical form and composes with nothing before it.
  const char32_t safe = form == NormalForm::kNfc ? 0x300 : 0xa0;
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  std::vector<utf8proc_int32_t> run;
  std::size_t offset = 0;
  while (offset < text.size()) {
    // What may change together: from one safe character before an unsafe one to the next safe one.
    std::size_t begin = offset;
    std::size_t last_safe = offset;
    while (offset < text.size()) {
      const CodePoint c = code_point_at(text, offset);
      if (c.value >= safe) break;
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
      if (c.value < safe && !first) break;
      first = false;
      if (is_inert(c.value)) {
        run.push_back(static_cast<utf8proc_int32_t>(c.value));
      } else {
        decompose(c.value, compatible, run);
      }
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
