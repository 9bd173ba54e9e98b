#include "base/log.h"

#include <atomic>
#include <cstdio>

namespace bl {
namespace {

std::atomic<bool>& quiet_flag() {
  static std::atomic<bool> quiet{false};
  return quiet;
}

}  // namespace

void set_quiet(bool quiet) { quiet_flag() = quiet; }
bool is_quiet() { return quiet_flag(); }

void log_line(LogLevel level, std::string_view message) {
  const char* prefix = level == LogLevel::kWarning ? "warning: " : "";
  const std::string line = fmt::format("bitloom: {}{}\n", prefix, message);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args args) {
  log_line(level, fmt::vformat(format, args));
}

}  // namespace bl
