#pragma once
// Classes of characters and normal forms, by utf8proc's Unicode data.

#include <string>
#include <string_view>
#include <vector>

namespace bl {

// Property White_Space.
bool is_white_space(char32_t c);
// General category N (Nd, Nl, No).
bool is_number(char32_t c);
// General category P.
bool is_punctuation(char32_t c);
// General category C except unassigned: controls, formats, surrogates, private use.
bool is_other(char32_t c);
// General category M; the second is Mn alone.
bool is_mark(char32_t c);
bool is_nonspacing_mark(char32_t c);
// The set that `\w` means in UTS 18, annex C: Alphabetic, M, Nd, Pc, Join_Control.
bool is_word_character(char32_t c);

// Appends the full lower case of one character, without regard to context (so a final sigma becomes
// a plain one).
void append_lower_case(char32_t c, std::string& out);

// The characters that differ from `c` only in case, and `c` itself: its simple upper, lower and
// title case, and the lower case of its upper case. In ascending order.
std::vector<char32_t> case_variants(char32_t c);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Normal forms of UAX 15 by the tables of Unicode 9; later characters stand for themselves. Linear
// in the length, even for long runs of combining marks. `text` must be valid UTF-8.
std::string normalize_unicode(std::string_view text, NormalForm form);

// The end of the extended grapheme cluster (UAX 29) that begins at `text[begin]`.
std::size_t grapheme_end(std::string_view text, std::size_t begin);

}  // namespace bl
