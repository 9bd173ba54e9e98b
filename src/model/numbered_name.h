#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace bl {

// Returns `text` with the number in place of the first `mark`, such as "{i}", if there is one.
std::string with_number(std::string text, std::string_view mark, std::int64_t number);

}  // namespace bl
