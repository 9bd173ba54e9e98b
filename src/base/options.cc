#include "base/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace bl {
namespace {

template <class T>
void parse_integer(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail(ErrorCode::kInvalidArgument, "'{}' is not a whole number{}", text,
         std::is_unsigned_v<T> ? " ≥ 0" : "");
  }
}

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr std::array<Unit, 13> kUnits{{{"", 1},
                                       {"B", 1},
                                       {"K", 0x1p10},
                                       {"KiB", 0x1p10},
                                       {"kB", 1e3},
                                       {"KB", 1e3},
                                       {"M", 0x1p20},
                                       {"MiB", 0x1p20},
                                       {"MB", 1e6},
                                       {"G", 0x1p30},
                                       {"GiB", 0x1p30},
                                       {"GB", 1e9},
                                       {"TiB", 0x1p40}}};

}  // namespace

void parse_value(std::string_view text, bool& value) {
  if (text == "true" || text == "on" || text == "1") {
    value = true;
  } else if (text == "false" || text == "off" || text == "0") {
    value = false;
  } else {
    fail(ErrorCode::kInvalidArgument, "'{}' is neither true nor false; write on or off{}", text,
         did_you_mean(text, {"on", "off", "true", "false"}));
  }
}

void parse_value(std::string_view text, std::int64_t& value) { parse_integer(text, value); }
void parse_value(std::string_view text, std::uint64_t& value) { parse_integer(text, value); }

void parse_value(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    fail(ErrorCode::kInvalidArgument, "'{}' is not a number", text);
  }
}

void parse_value(std::string_view text, std::string& value) { value = std::string(text); }

void parse_value(std::string_view text, ByteSize& value) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const auto known =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == unit; });
  if (error != std::errc() || known == kUnits.end() || !(number >= 0) ||
      number * known->bytes >= 0x1p62) {
    fail(ErrorCode::kInvalidArgument, "'{}' is not a size such as 24GiB, 500MB or 4096", text);
  }
  value.bytes = static_cast<std::uint64_t>(number * known->bytes);
}

std::string show_value(bool value) { return value ? "on" : ""; }
std::string show_value(std::int64_t value) { return std::to_string(value); }
std::string show_value(std::uint64_t value) { return std::to_string(value); }
std::string show_value(double value) { return fmt::format("{}", value); }
std::string show_value(const std::string& value) { return value; }
std::string show_value(const ByteSize& value) {
  return value.bytes == 0 ? std::string() : fmt::format("{}", value.bytes);
}

std::string option_key(const OptionField& field) {
  std::string_view flag = field.flag;
  if (const auto comma = flag.rfind(','); comma != flag.npos) flag.remove_prefix(comma + 1);
  while (!flag.empty() && flag.front() == '-') flag.remove_prefix(1);
  std::string key(flag);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

}  // namespace bl
