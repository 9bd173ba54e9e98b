#pragma once
// Messages to people, on stderr. Results go to stdout and never through here.

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace bl {

enum class LogLevel { kWarning, kInfo };

// Suppresses kInfo messages (the command line's --quiet).
void set_quiet(bool quiet);
bool is_quiet();

// Writes one line `bitloom: message` (kWarning: `bitloom: warning: message`).
void log_line(LogLevel level, std::string_view message);

template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (!is_quiet()) log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace bl
