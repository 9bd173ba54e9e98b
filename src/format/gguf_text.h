#pragma once
#include <string_view>

namespace bl {

// Well-formed UTF-8 by the table of the Unicode standard: no surrogates, no overlong forms.
bool is_utf8(std::string_view text);

}  // namespace bl
