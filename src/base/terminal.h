#pragma once
// Facts about the terminal behind a stream, and text formatted for people.

#include <string>
#include <string_view>

namespace bl {

enum class Stream { kStdin, kStdout, kStderr };

bool is_terminal(Stream stream);
// The terminal's width in columns; 80 where there is no terminal.
int terminal_width(Stream stream);
// Whether the stream is a terminal that is not dumb, and NO_COLOR is not set.
bool wants_color(Stream stream);

enum class Color { kPlain, kDim, kRed, kGreen };

// The text in color where `stream` wants colors, else unchanged.
std::string colored(Stream stream, Color color, std::string_view text);

// A number of bytes for people: "12.3 MiB", "4.0 GiB".
std::string human_bytes(double bytes);
// A duration for people: "0:07", "1:02:09".
std::string human_time(double seconds);

}  // namespace bl
