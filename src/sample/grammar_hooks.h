#pragma once
// Functions that the grammar library calls while it works. Its sources are compiled with this
// header included, and tools/fetch_xgrammar patches the calls in: where it loops or allocates
// without a bound of its own, so that no grammar costs more than its caller allows; where it reads
// or writes characters, so that everything it accepts is valid UTF-8; and where a grammar contains
// a JSON schema.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace bl {

// Reports that `steps` small steps, of about ten nanoseconds each, are about to be done. Throws if
// the budget of this thread (work_budget.h) is spent, as does keep_work().
void spend_work(std::size_t steps);
// Reports that `bytes` bytes are about to be allocated for keeps.
void keep_work(std::size_t bytes);

// See regex_dialect.h. For patterns whose text is not inside a JSON string.
std::string with_plain_dots(std::string_view regex);
// See regex_dialect.h. For patterns that need to match only a part of a property name.
std::string with_text_around(std::string_view regex);

// The EBNF of a JSON schema that is embedded in a grammar (Lark's %json): see
// grammar/schema_grammar.h.
std::string grammar_of_embedded_schema(const std::string& text);

// Whether UTF-8 can encode this code point: no half of a surrogate pair, nothing above U+10FFFF.
constexpr bool is_character(std::int64_t code) {
  return code >= 0 && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
}

// Whether the escape with this letter is a set of characters (`\d`), which cannot begin or end a
// range of a character class.
constexpr bool is_set_of_signs(std::int64_t letter) {
  for (const char set : {'d', 'D', 's', 'S', 'w', 'W'}) {
    if (letter == set) return true;
  }
  return false;
}

// Joins a surrogate pair that is written as two escapes, as in ECMAScript and JSON
// (`\ud83d\ude00`). `code` is the value of the first escape, `next` the zero-terminated text after
// it. Sets `code` to the character and returns the length of the second escape, 6; returns 0 and
// changes nothing if the two are no pair.
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

// Cuts a range of characters of one encoded length, given as their bytes in big-endian order, to
// what is valid UTF-8 (Unicode 15, table 3-7): no surrogates, no overlong forms, nothing above
// U+10FFFF. Ranges of continuation bytes stay as they are. Returns false if nothing is left, or if
// the range fell into two parts, which have then been passed to add().
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
