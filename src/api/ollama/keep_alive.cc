#include "api/ollama/keep_alive.h"

#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "api/request_error.h"
#include "api/request_fields.h"
#include "base/json.h"

namespace bl::ollama {
namespace {

// Longer than that is for ever, and milliseconds still fit their type.
constexpr double kMostSeconds = 1e12;

struct Unit {
  std::string_view name;
  double seconds;
};
// A unit that begins like another one comes first.
constexpr std::array<Unit, 8> kUnits{{{"ns", 1e-9},
                                      {"us", 1e-6},
                                      {"µs", 1e-6},
                                      {"ms", 1e-3},
                                      {"s", 1},
                                      {"m", 60},
                                      {"h", 3600},
                                      {"d", 86400}}};

// A duration as Go writes it, numbers with units one after the other. A number alone is seconds.
std::optional<double> seconds_in(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  double sum = 0;
  while (!text.empty()) {
    double number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc() || number < 0) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    double unit = text.empty() ? 1 : 0;
    for (const Unit& known : kUnits) {
      if (!text.starts_with(known.name)) continue;
      unit = known.seconds;
      text.remove_prefix(known.name.size());
      break;
    }
    if (unit == 0) return std::nullopt;
    sum += number * unit;
  }
  return is_negative ? -sum : sum;
}

}  // namespace

std::optional<KeepAlive> read_keep_alive(const OrderedJson& body) {
  const OrderedJson* value = openai::given(body, "keep_alive");
  if (value == nullptr || *value == "") return std::nullopt;
  std::optional<double> seconds;
  if (value->is_number()) seconds = value->get<double>();
  if (value->is_string()) seconds = seconds_in(value->get_ref<const std::string&>());
  if (!seconds) {
    openai::fail_at(ErrorCode::kInvalidArgument, "keep_alive",
                    "keep_alive is {}, should be a number of seconds or a duration such as \"5m\"",
                    json_shown(*value));
  }
  if (*seconds < 0 || *seconds > kMostSeconds) return KeepAlive{.forever = true};
  return KeepAlive{.time = std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1e3))};
}

}  // namespace bl::ollama
