#pragma once
// Messages to people, on stderr. Results go to stdout and never through these functions.

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace bl {

enum class LogLevel { kWarning, kInfo };

// Suppresses kInfo messages (the command line's --quiet).
void set_quiet(bool quiet);
bool is_quiet();

// Writes one line `bitloom: message` (kWarning: `bitloom: warning: message`).
void log_line(LogLevel level, std::string_view message);

// The part of the functions below that is no template.
void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args args);

template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_formatted(LogLevel::kWarning, format, fmt::make_format_args(args...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (!is_quiet()) log_formatted(LogLevel::kInfo, format, fmt::make_format_args(args...));
}

}  // namespace bl
