#pragma once
#include <string>
#include <string_view>

namespace bl {

// Where the grammar library reads EBNF in another way than GBNF: a `.` by itself, which is any
// character there but a part of a rule's name here, is written as a class of all characters. Within
// texts, classes, comments and names it stays.
std::string with_any_characters(std::string_view grammar);

}  // namespace bl
