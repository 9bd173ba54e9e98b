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

// Rounds tokens and keys up to powers of two, since they change from step to step and a profile
// should not have a line for each. Widths stay as they are.
OpShape shape_class(const OpShape& shape);

// Returns "8 x 4096 -> 28672" (tokens, elements read, elements written), and for attention also
// ", 2048 keys". Sizes that an op does not have are left out.
std::string to_text(const OpShape& shape);

// The calls of one op with one class of shapes.
struct OpTime {
  std::string_view op;
  OpShape shape;
  std::int64_t calls = 0;
  double seconds = 0;
};

// Adds up where the time of some steps goes.
class OpProfile {
 public:
  void add(const OpCall& call, double seconds);
  // Sorted by time, longest first.
  std::vector<OpTime> times() const;
  double seconds() const;  // sum over all ops

 private:
  std::map<std::tuple<std::string_view, OpShape>, OpTime> times_;
};

// Returns a table with a line per entry of times(), a line for the time outside ops, and a line for
// the whole. `wall_seconds` is the time that the steps took as a whole; shares are parts of it.
std::string to_text(const OpProfile& profile, double wall_seconds);

// Adds the time of each op to a profile. Made by Backend::op_timer().
class OpTimer : public OpObserver {
 public:
  // Adds what was timed since the last call, and waits for it first if the ops run on a device.
  virtual void collect() {}
};

// Times each op by the host's clock, for backends whose ops are finished when they return.
class HostOpTimer final : public OpTimer {
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
