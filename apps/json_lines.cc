#include "json_lines.h"

#include <iostream>
#include <string>

#include "base/error.h"
#include "base/interrupt.h"
#include "results.h"

namespace bl {

void for_each_input_line(const std::function<void(std::string_view line)>& body) {
  std::ios::sync_with_stdio(false);
  std::string line;
  for (long number = 1; std::getline(std::cin, line); ++number) {
    check_interrupt();
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    try {
      body(line);
    } catch (const Error& error) {
      fail(error.code(), "line {} of standard input: {}", number, error.what());
    }
    // A program that drives this over a pipe gets each answer before it asks the next question.
    if (std::cin.rdbuf()->in_avail() <= 0) flush_results();
  }
  check_interrupt();
  if (std::cin.bad()) fail(ErrorCode::kIo, "cannot read standard input");
}

}  // namespace bl
