#pragma once
#include <functional>
#include <string_view>

namespace bl {

// Reads standard input line by line and calls body(line). Blank lines are skipped. Where body()
// throws an Error, throws it on with the line's number in front ("line 3 of standard input: …");
// results written before it have reached stdout.
void for_each_input_line(const std::function<void(std::string_view line)>& body);

}  // namespace bl
