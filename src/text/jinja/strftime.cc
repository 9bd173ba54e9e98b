#include "text/jinja/strftime.h"

#include <fmt/core.h>

#include <array>

namespace bl::jinja {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

struct Moment {
  std::int64_t year = 1970;
  int month = 1;     // 1 to 12
  int day = 1;       // 1 to 31
  int year_day = 0;  // 0 to 365
  int week_day = 4;  // 0 is Sunday
  int hour = 0, minute = 0, second = 0;
};

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

bool is_leap(std::int64_t year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

// Computes the date by counting days from 1 March 0000 in eras of 400 years (Hinnant,
// "chrono-compatible low-level date algorithms").
Moment moment_of(std::int64_t seconds) {
  Moment m;
  const std::int64_t days = floor_div(seconds, 86400);
  const auto in_day = static_cast<int>(seconds - days * 86400);
  m.hour = in_day / 3600;
  m.minute = in_day / 60 % 60;
  m.second = in_day % 60;
  m.week_day = static_cast<int>(((days + 4) % 7 + 7) % 7);
  const std::int64_t shifted = days + 719468;
  const std::int64_t era = floor_div(shifted, 146097);
  const std::int64_t in_era = shifted - era * 146097;
  const std::int64_t year_of_era =
      (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
  const std::int64_t from_march =
      in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t month_from_march = (5 * from_march + 2) / 153;
  m.day = static_cast<int>(from_march - (153 * month_from_march + 2) / 5 + 1);
  m.month = static_cast<int>(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
  m.year = year_of_era + era * 400 + (m.month <= 2 ? 1 : 0);
  constexpr std::array<int, 12> kBefore = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  m.year_day = kBefore[static_cast<std::size_t>(m.month - 1)] + m.day - 1 +
               (m.month > 2 && is_leap(m.year) ? 1 : 0);
  return m;
}

struct IsoWeek {
  std::int64_t year;
  int week;
};

IsoWeek iso_week(const Moment& m) {
  const int from_monday = (m.week_day + 6) % 7;
  int week = (m.year_day - from_monday + 10) / 7;
  const auto weeks_in = [](std::int64_t year) {
    const auto day_of_31_december = [](std::int64_t y) {
      return (y + y / 4 - y / 100 + y / 400) % 7;
    };
    return day_of_31_december(year) == 4 || day_of_31_december(year - 1) == 3 ? 53 : 52;
  };
  if (week < 1) return {m.year - 1, weeks_in(m.year - 1)};
  if (week > weeks_in(m.year)) return {m.year + 1, 1};
  return {m.year, week};
}

class TimeFormatter {
 public:
  explicit TimeFormatter(std::int64_t seconds) : seconds_(seconds), m_(moment_of(seconds)) {}

  std::string run(std::string_view format) {
    std::string out;
    for (std::size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 == format.size()) {
        out.push_back(format[i]);
        continue;
      }
      const std::size_t begin = i++;
      flag_ = '\0';
      if (std::string_view("-_0^#").find(format[i]) != std::string_view::npos &&
          i + 1 < format.size()) {
        flag_ = format[i++];
      }
      // Alternative eras and digits are the plain ones in the C locale.
      if ((format[i] == 'E' || format[i] == 'O') && i + 1 < format.size()) ++i;
      const std::string text = directive(format[i]);
      if (text.empty() && std::string_view("zZ").find(format[i]) == std::string_view::npos) {
        out += format.substr(begin, i - begin + 1);
      } else {
        out += flag_ == '^' || flag_ == '#' ? upper(text) : text;
      }
    }
    return out;
  }

 private:
  static std::string upper(std::string text) {
    for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    return text;
  }

  std::string number(std::int64_t value, int width, char pad = '0') const {
    if (flag_ == '-') return std::to_string(value);
    if (flag_ == '_') pad = ' ';
    if (flag_ == '0') pad = '0';
    return pad == '0' ? fmt::format("{:0{}}", value, width) : fmt::format("{:{}}", value, width);
  }

  int hour12() const { return m_.hour % 12 == 0 ? 12 : m_.hour % 12; }

  std::string directive(char c) {
    const auto day = kDays[static_cast<std::size_t>(m_.week_day)];
    const auto month = kMonths[static_cast<std::size_t>(m_.month - 1)];
    switch (c) {
      case 'a':
        return std::string(day.substr(0, 3));
      case 'A':
        return std::string(day);
      case 'b':
      case 'h':
        return std::string(month.substr(0, 3));
      case 'B':
        return std::string(month);
      case 'p':
        return m_.hour < 12 ? "AM" : "PM";
      case 'P':
        return m_.hour < 12 ? "am" : "pm";
      case 'n':
        return "\n";
      case 't':
        return "\t";
      case '%':
        return "%";
      case 'f':
        return "000000";
      default:
        return composed(c);
    }
  }

  std::string composed(char c) {
    const auto with = [this](std::string_view format) {
      return TimeFormatter(seconds_).run(format);
    };
    switch (c) {
      case 'c':
        return with("%a %b %e %H:%M:%S %Y");
      case 'D':
      case 'x':
        return with("%m/%d/%y");
      case 'F':
        return with("%Y-%m-%d");
      case 'r':
        return with("%I:%M:%S %p");
      case 'R':
        return with("%H:%M");
      case 'T':
      case 'X':
        return with("%H:%M:%S");
      default:
        return numeric(c);
    }
  }

  std::string numeric(char c) const {
    switch (c) {
      case 'Y':
        return flag_ == '\0' ? std::to_string(m_.year) : number(m_.year, 4);
      case 'C':
        return number(m_.year / 100, 2);
      case 'y':
        return number(m_.year % 100, 2);
      case 'm':
        return number(m_.month, 2);
      case 'd':
        return number(m_.day, 2);
      case 'e':
        return number(m_.day, 2, ' ');
      case 'j':
        return number(m_.year_day + 1, 3);
      case 'H':
        return number(m_.hour, 2);
      case 'k':
        return number(m_.hour, 2, ' ');
      case 'I':
        return number(hour12(), 2);
      case 'l':
        return number(hour12(), 2, ' ');
      case 'M':
        return number(m_.minute, 2);
      case 'S':
        return number(m_.second, 2);
      case 's':
        return std::to_string(seconds_);
      case 'u':
        return number(m_.week_day == 0 ? 7 : m_.week_day, 1);
      case 'w':
        return number(m_.week_day, 1);
      case 'U':
        return number((m_.year_day + 7 - m_.week_day) / 7, 2);
      case 'W':
        return number((m_.year_day + 7 - (m_.week_day + 6) % 7) / 7, 2);
      case 'V':
        return number(iso_week(m_).week, 2);
      case 'G':
        return std::to_string(iso_week(m_).year);
      case 'g':
        return number(iso_week(m_).year % 100, 2);
      default:
        return {};
    }
  }

  std::int64_t seconds_;
  Moment m_;
  char flag_ = '\0';
};

}  // namespace

std::string format_time(std::string_view format, std::int64_t seconds) {
  return TimeFormatter(seconds).run(format);
}

}  // namespace bl::jinja
