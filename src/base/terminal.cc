#include "base/terminal.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>

namespace bl {
namespace {

int descriptor(Stream stream) {
  switch (stream) {
    case Stream::kStdin:
      return STDIN_FILENO;
    case Stream::kStdout:
      return STDOUT_FILENO;
    case Stream::kStderr:
      break;
  }
  return STDERR_FILENO;
}

std::string_view code_of(Color color) {
  constexpr std::array<std::string_view, 4> kCodes{"0", "2", "31", "32"};
  return kCodes[static_cast<std::size_t>(color)];
}

}  // namespace

bool is_terminal(Stream stream) { return isatty(descriptor(stream)) == 1; }

int terminal_width(Stream stream) {
  winsize size{};
  if (ioctl(descriptor(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

bool wants_color(Stream stream) {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  return is_terminal(stream) && term != nullptr && std::string_view(term) != "dumb";
}

std::string colored(Stream stream, Color color, std::string_view text) {
  if (color == Color::kPlain || !wants_color(stream)) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code_of(color), text);
}

std::string human_bytes(double bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string human_time(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace bl
