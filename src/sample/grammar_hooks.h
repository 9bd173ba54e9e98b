#pragma once
// What the grammar library calls while it works. Its sources are compiled with this header in front
// of them, and tools/fetch_xgrammar puts the calls in: where it loops or allocates without a bound
// of its own, so that no grammar, however it was made, costs more than its caller allows; where it
// reads and makes characters, so that all it lets pass is UTF-8; and where a grammar holds a
// schema.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace bl {

// So many small steps, of about ten nanoseconds each, are about to be done. Throws when the budget
// of the present thread (work_budget.h) is spent; so does keep_work().
void spend_work(std::size_t steps);
// So many bytes are about to be kept.
void keep_work(std::size_t bytes);

// regex_dialect.h; for patterns whose texts stand outside of JSON strings.
std::string with_plain_dots(std::string_view regex);
// regex_dialect.h; for patterns that need not match all of a name.
std::string with_text_around(std::string_view regex);

// json_schema_check.h, for a schema that stands in a grammar (Lark's %json).
void check_embedded_schema(const std::string& text);

// Whether UTF-8 has this code point: no half of a surrogate pair, nothing above U+10FFFF.
constexpr bool is_character(std::int64_t code) {
  return code >= 0 && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
}

// Whether the escape of this letter is a set of characters (`\d`), which no range of a class can
// begin or end with.
constexpr bool is_set_of_signs(std::int64_t letter) {
  for (const char set : {'d', 'D', 's', 'S', 'w', 'W'}) {
    if (letter == set) return true;
  }
  return false;
}

// Of `\ud83d\ude00`, one character as ECMAScript and JSON write it: `code` is what the first escape
// says, `next` what stands behind it, up to a zero. Makes `code` the character and returns the 6
// signs of the second escape; 0, and nothing has changed, where the two are no pair.
template <class Sign, class Code>
int join_surrogates(const Sign* next, Code& code) {
  if (code < 0xD800 || code > 0xDBFF || next[0] != '\\' || next[1] != 'u') return 0;
  std::uint32_t low = 0;
  for (int i = 2; i < 6; ++i) {
    const auto sign = static_cast<std::uint32_t>(next[i]);
    const std::uint32_t letter = sign | 0x20;
    if (sign >= '0' && sign <= '9') {
      low = low * 16 + (sign - '0');
    } else if (letter >= 'a' && letter <= 'f') {
      low = low * 16 + (letter - 'a' + 10);
    } else {
      return 0;
    }
  }
  if (low < 0xDC00 || low > 0xDFFF) return 0;
  code = static_cast<Code>(0x10000 + ((static_cast<std::uint32_t>(code) - 0xD800) << 10) +
                           (low - 0xDC00));
  return 6;
}

// Cuts a range of characters of one length, written as their bytes one after another, to what UTF-8
// has (Unicode 15, table 3-7): no surrogates, no forms longer than needed, nothing above U+10FFFF.
// Ranges of bytes that continue a character are as they were. False where nothing is left of it, or
// add() has been called with its parts.
template <class Add>
bool keep_to_utf8(std::uint32_t& low, std::uint32_t& high, const Add& add) {
  if (high >= 0xF0000000) {
    low = std::max<std::uint32_t>(low, 0xF0908080);
    high = std::min<std::uint32_t>(high, 0xF48FBFBF);
  } else if (low >= 0xE00000 && high <= 0xEFBFBF) {
    low = std::max<std::uint32_t>(low, 0xE0A080);
    if (low <= 0xEDBFBF && high >= 0xEDA080) {
      if (low < 0xEDA080) add(low, std::uint32_t{0xED9FBF});
      if (high > 0xEDBFBF) add(std::uint32_t{0xEE8080}, high);
      return false;
    }
  } else if (low >= 0xC000 && high <= 0xDFBF) {
    low = std::max<std::uint32_t>(low, 0xC280);
  }
  return low <= high;
}

}  // namespace bl
