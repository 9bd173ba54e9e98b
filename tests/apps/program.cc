#include "program.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstdlib>

#include "base/file.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& input,
                          const std::string& prefix) {
  const fs::path work = scratch_dir("program");
  write_file_atomically(work / "in", input);
  std::string command = prefix + quoted(BL_BINARY);
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  command += fmt::format(" < {0}/in > {0}/out 2> {0}/err", work.string());
  const int raw = std::system(command.c_str());
  ProgramResult result;
  result.status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  result.out = read_file(work / "out", UINT64_MAX);
  result.err = read_file(work / "err");
  fs::remove_all(work);
  return result;
}

}  // namespace bl::test
