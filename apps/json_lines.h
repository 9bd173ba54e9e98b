#pragma once
#include <functional>
#include <string_view>

namespace bl {

// Reads standard input line by line and calls body(line, what), where `what` names the line for
// messages ("line 3 of standard input"). Blank lines are skipped. An Error that body throws comes
// out with that name in front; results written before it have reached stdout.
void for_each_input_line(const std::function<void(std::string_view line)>& body);

}  // namespace bl
