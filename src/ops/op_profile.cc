#include "ops/op_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>

namespace bl {
namespace {

std::int64_t rounded_up(std::int64_t count) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)));
}

std::string line(std::string_view op, std::string_view shape, std::string_view calls,
                 double seconds, double wall_seconds) {
  return fmt::format("{:<18} {:<34} {:>9} {:>11.3f} {:>6.1f} %\n", op, shape, calls, seconds * 1e3,
                     wall_seconds > 0 ? seconds / wall_seconds * 100 : 0);
}

}  // namespace

OpShape shape_class(const OpShape& shape) {
  OpShape rounded = shape;
  if (shape.tokens > 0) rounded.tokens = rounded_up(shape.tokens);
  if (shape.keys > 0) rounded.keys = rounded_up(shape.keys);
  return rounded;
}

std::string to_text(const OpShape& shape) {
  std::string text = fmt::format("{}", shape.tokens);
  if (shape.in > 0) text += fmt::format(" x {}", shape.in);
  if (shape.out > 0) text += fmt::format(" -> {}", shape.out);
  if (shape.keys > 0) text += fmt::format(", {} keys", shape.keys);
  return text;
}

void OpProfile::add(const OpCall& call, double seconds) {
  const OpShape shape = shape_class(call.shape);
  OpTime& time = times_.try_emplace({call.op, shape}, OpTime{call.op, shape}).first->second;
  ++time.calls;
  time.seconds += seconds;
}

std::vector<OpTime> OpProfile::times() const {
  std::vector<OpTime> times;
  for (const auto& [key, time] : times_) times.push_back(time);
  std::ranges::stable_sort(times, std::greater<>(), &OpTime::seconds);
  return times;
}

double OpProfile::seconds() const {
  double sum = 0;
  for (const auto& [key, time] : times_) sum += time.seconds;
  return sum;
}

std::string to_text(const OpProfile& profile, double wall_seconds) {
  std::string text = fmt::format("{:<18} {:<34} {:>9} {:>11} {:>8}\n", "op", "tokens x in -> out",
                                 "calls", "total ms", "share");
  for (const OpTime& time : profile.times()) {
    text += line(time.op, to_text(time.shape), fmt::format("{}", time.calls), time.seconds,
                 wall_seconds);
  }
  text += line("outside ops", "", "", wall_seconds - profile.seconds(), wall_seconds);
  text += line("all", "", "", wall_seconds, wall_seconds);
  return text;
}

double HostOpTimer::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace bl
