#pragma once
// What the terminal behind a stream can do.

#include <string>
#include <string_view>

namespace bl {

enum class Stream { kStdin, kStdout, kStderr };

bool is_terminal(Stream stream);
// Columns of the terminal; 80 where there is none.
int terminal_width(Stream stream);
// A terminal that is not dumb, and NO_COLOR is not set.
bool wants_color(Stream stream);

enum class Color { kPlain, kBold, kDim, kRed, kGreen, kYellow, kBlue, kCyan };

// The text in colour where `stream` wants colours, else as it is.
std::string colored(Stream stream, Color color, std::string_view text);

// "12.3 MiB", "4.0 GiB".
std::string human_bytes(double bytes);
// "0:07", "1:02:09".
std::string human_time(double seconds);

}  // namespace bl
