#pragma once
#include <cstdint>
#include <string>

namespace bl::ollama {

// A time in nanoseconds since 1970 as RFC 3339 writes it, in UTC: "2026-11-05T12:30:00.000000000Z".
std::string rfc3339(std::int64_t nanoseconds);
// The clock's time in nanoseconds since 1970.
std::int64_t unix_nanoseconds();

}  // namespace bl::ollama
