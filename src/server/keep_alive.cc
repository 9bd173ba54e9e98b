#include "server/keep_alive.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/request_error.h"
#include "api/request_fields.h"
#include "base/json.h"

namespace bl::server {
namespace {

struct Unit {
  std::string_view name;
  double seconds;
};
// A unit that begins like another one stands before it.
constexpr std::array kUnits{Unit{"ms", 1e-3}, Unit{"us", 1e-6}, Unit{"µs", 1e-6}, Unit{"ns", 1e-9},
                            Unit{"h", 3600},  Unit{"m", 60},    Unit{"s", 1}};
constexpr double kMostSeconds = 1e9;  // about 30 years

// Takes a number and its unit from the front; a number alone is seconds where nothing follows.
std::optional<double> take_part(std::string_view& text) {
  std::size_t digits = 0;
  while (digits < text.size() &&
         (text[digits] == '.' || (text[digits] >= '0' && text[digits] <= '9'))) {
    ++digits;
  }
  if (digits == 0 || digits > 18) return std::nullopt;
  double number = 0;
  const char* const end = text.data() + digits;
  if (std::from_chars(text.data(), end, number).ptr != end) return std::nullopt;
  text.remove_prefix(digits);
  if (text.empty()) return number;
  for (const Unit& unit : kUnits) {
    if (!text.starts_with(unit.name)) continue;
    text.remove_prefix(unit.name.size());
    return number * unit.seconds;
  }
  return std::nullopt;
}

std::optional<double> seconds_of(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double seconds = 0;
  while (!text.empty()) {
    const std::optional<double> part = take_part(text);
    if (!part) return std::nullopt;
    seconds += *part;
  }
  return negative ? -seconds : seconds;
}

}  // namespace

std::optional<std::chrono::milliseconds> keep_alive_of(const OrderedJson& body) {
  const OrderedJson* value = openai::given(body, "keep_alive");
  if (value == nullptr) return std::nullopt;
  std::optional<double> seconds;
  if (value->is_number()) seconds = value->get<double>();
  if (value->is_string()) seconds = seconds_of(value->get_ref<const std::string&>());
  if (!seconds || !std::isfinite(*seconds)) {
    openai::fail_at(ErrorCode::kInvalidArgument, "keep_alive",
                    "keep_alive should be a number of seconds, or a duration such as \"5m\"");
  }
  if (*seconds < 0) return std::chrono::milliseconds(-1);
  const double most = std::min(*seconds, kMostSeconds);
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::llround(most * 1000)));
}

}  // namespace bl::server
