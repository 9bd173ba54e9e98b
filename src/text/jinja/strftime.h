#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace bl::jinja {

// datetime.strftime of a moment in UTC, in the C locale, with glibc's flags (%-d, %_d, %^a).
// `seconds`: Unix time.
std::string format_time(std::string_view format, std::int64_t seconds);

}  // namespace bl::jinja
