#pragma once
#include <string>
#include <string_view>

namespace bl {

// In GBNF a lone `.` is any character; the grammar library's EBNF takes it for part of a rule's
// name. Returns the grammar with each such `.` written as a class of all characters. Dots in
// literals, classes, comments and names stay.
std::string with_any_characters(std::string_view grammar);

}  // namespace bl
