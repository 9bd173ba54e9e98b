#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace bl::jinja {

// datetime.strftime for a moment in UTC, given as Unix time in seconds; in the C locale and with
// glibc's flags (%-d, %_d, %^a).
std::string format_time(std::string_view format, std::int64_t seconds);

}  // namespace bl::jinja
