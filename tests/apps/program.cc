#include "program.h"

#include <fmt/format.h>
#include <pty.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/check.h"
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

// The shell's line that runs it, with its streams in files of `work`.
std::string command_of(const std::vector<std::string>& arguments, const fs::path& work) {
  std::string command = quoted(BL_BINARY);
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  return command + fmt::format(" < {0}/in > {0}/out 2> {0}/err", work.string());
}

// `raw`: as wait() gives it.
ProgramResult result_of(int raw, const fs::path& work) {
  ProgramResult result;
  result.status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  result.out = read_file(work / "out", UINT64_MAX);
  result.err = read_file(work / "err");
  fs::remove_all(work);
  return result;
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& arguments, const std::string& input,
                          const std::string& prefix) {
  const fs::path work = scratch_dir("program");
  write_file_atomically(work / "in", input);
  const int raw = std::system((prefix + command_of(arguments, work)).c_str());
  return result_of(raw, work);
}

ProgramResult run_line(const std::string& line) {
  const fs::path work = scratch_dir("line");
  const std::string script = fmt::format(
      "cd {0} && mkdir empty && cd empty && bitloom() {{ {1} \"$@\"; }} && ( {2} ) > {0}/out 2> "
      "{0}/err < /dev/null",
      work.string(), quoted(BL_BINARY), line);
  const int raw = std::system(script.c_str());
  return result_of(raw, work);
}

std::string run_in_terminal(const std::vector<std::string>& arguments, std::size_t columns) {
  winsize size{};
  size.ws_row = 40;
  size.ws_col = static_cast<unsigned short>(columns);
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  BL_CHECK(child >= 0);
  if (child == 0) {
    std::string command = "exec " + quoted(BL_BINARY);
    for (const std::string& argument : arguments) command += " " + quoted(argument);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  std::string text;
  std::array<char, 4096> piece;
  // Reading fails (EIO) when the program has ended.
  for (ssize_t got; (got = ::read(terminal, piece.data(), piece.size())) > 0;) {
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  std::erase(text, '\r');
  return text;
}

ProgramResult interrupt_program(const std::vector<std::string>& arguments,
                                const std::string& sign) {
  const fs::path work = scratch_dir("program");
  for (const char* file : {"in", "err"}) write_file_atomically(work / file, "");
  const std::string command = "exec " + command_of(arguments, work);
  const pid_t child = ::fork();
  BL_CHECK(child >= 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it does not stay behind where the test is killed
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  const auto later = [] { return std::chrono::steady_clock::now() + std::chrono::minutes(4); };
  auto limit = later();
  bool interrupted = false;
  int raw = 0;
  while (::waitpid(child, &raw, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > limit) ::kill(child, SIGKILL);
    if (!interrupted && read_file(work / "err").find(sign) != std::string::npos) {
      interrupted = true;
      limit = later();
      ::kill(child, SIGINT);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return result_of(raw, work);
}

}  // namespace bl::test
