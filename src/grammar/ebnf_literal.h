#pragma once
#include <string>
#include <string_view>

namespace bl {

// The EBNF literal that matches these bytes and nothing else, in quotes.
std::string ebnf_literal(std::string_view text);

}  // namespace bl
