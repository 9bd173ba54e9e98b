#pragma once
#include <string>
#include <string_view>

namespace bl {

// A name from a file, safe to print on one line: in single quotes, with every byte that is not
// printable ASCII escaped, cut after 120 bytes.
std::string quoted_name(std::string_view name);

}  // namespace bl
