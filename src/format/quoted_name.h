#pragma once
#include <string>
#include <string_view>

namespace bl {

// A name from a file, safe to print on one line: in single quotes, control characters and invalid
// bytes escaped, cut after 120 characters.
std::string quoted_name(std::string_view name);

}  // namespace bl
