#pragma once
#include <string>
#include <vector>

namespace bl::test {

struct ProgramResult {
  int status = 0;  // exit status, or 128 + signal
  std::string out;
  std::string err;
};

// Runs the built binary with these arguments and this standard input, behind `prefix` in the
// shell's command line ("ulimit -f 8; ").
ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& input = "",
                          const std::string& prefix = "");

// Runs a line of the shell in an empty folder, where `bitloom` is the built binary.
ProgramResult run_line(const std::string& line);

// What it writes to a terminal of so many columns.
std::string run_in_terminal(const std::vector<std::string>& arguments, std::size_t columns);

// Runs it until it has written `sign` to standard error, and interrupts it then, once. Kills it
// where minutes go by without the sign, or after the interrupt without an end.
ProgramResult interrupt_program(const std::vector<std::string>& arguments, const std::string& sign);

}  // namespace bl::test
