#pragma once
// Lists in one argument or variable, such as a,b,c.

#include <string>
#include <string_view>
#include <vector>

namespace bl {

// Returns the parts between commas; an empty list has one empty part.
inline std::vector<std::string> split_at_commas(std::string_view list) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = list.find(',');
    parts.emplace_back(list.substr(0, comma));
    if (comma == list.npos) return parts;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace bl
