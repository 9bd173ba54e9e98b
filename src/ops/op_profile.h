#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ops/recording_table.h"

namespace bl {

// Numbers of tokens and of keys change from step to step; rounding them up to powers of two keeps
// equal work together. Widths stay as they are.
OpShape shape_class(const OpShape& shape);

// "8 x 4096 -> 28672": tokens, elements read, elements written; then ", 2048 keys" for attention.
// Sizes that an op does not have are left out.
std::string to_text(const OpShape& shape);

// All calls of one op with one class of shapes.
struct OpTime {
  std::string_view op;
  OpShape shape;
  std::int64_t calls = 0;
  double seconds = 0;
};

// Where the time of some steps went.
class OpProfile {
 public:
  void add(const OpCall& call, double seconds);
  // The longest time first.
  std::vector<OpTime> times() const;
  double seconds() const;  // of all ops

 private:
  std::map<std::tuple<std::string_view, OpShape>, OpTime> times_;
};

// A table with a line for each of times(), longest first, and lines for the time outside ops and
// for all of `wall_seconds`, which the shares are of: the time that the steps took as a whole.
std::string to_text(const OpProfile& profile, double wall_seconds);

// Adds the time of each op to a profile by the clock of the host: for backends whose ops are over
// when they return.
class HostOpTimer final : public OpObserver {
 public:
  using Clock = std::function<double()>;  // seconds
  explicit HostOpTimer(OpProfile& profile, Clock now = steady_seconds)
      : profile_(profile), now_(std::move(now)) {}
  void before(ExecContext&, const OpCall&) override { begin_ = now_(); }
  void after(ExecContext&, const OpCall& call) override { profile_.add(call, now_() - begin_); }

 private:
  static double steady_seconds();
  OpProfile& profile_;
  Clock now_;
  double begin_ = 0;
};

}  // namespace bl
