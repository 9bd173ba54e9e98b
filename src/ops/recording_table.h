#pragma once
// A backend's op table that tells an observer of every op, for profiles.

#include <compare>
#include <cstdint>
#include <string_view>

#include "ops/op_table.h"

namespace bl {

// The sizes that an op's time depends on; 0 where an op has no such size.
struct OpShape {
  std::int64_t tokens = 0;  // rows of activations
  std::int64_t in = 0;      // elements of a row that is read
  std::int64_t out = 0;     // elements of a row that is written; of several outputs, their sum
  std::int64_t keys = 0;    // attention: positions of the longest sequence
  auto operator<=>(const OpShape&) const = default;
};

struct OpCall {
  std::string_view op;  // its name in OpTable; valid for ever
  OpShape shape;
};

// What a RecordingTable calls, in the thread that runs the step. Calls do not nest: an op that runs
// other ops counts as one.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  // Right before an op is called and right after it has returned. A device's op is then enqueued on
  // the context's stream but not over, so that an observer for devices records an event at each.
  virtual void before(ExecContext& ctx, const OpCall& call) = 0;
  virtual void after(ExecContext& ctx, const OpCall& call) = 0;
};

// Stands for another table in ExecContext::ops. It has exactly the ops of that table, and they do
// what they do there. Questions about ops (half_input_width, rests_left, reader_multiplies) are
// passed on without notice.
class RecordingTable : public OpTable {
 public:
  // Both must outlive this.
  RecordingTable(const OpTable& table, OpObserver& observer);

  const OpTable& table() const { return table_; }
  OpObserver& observer() const { return observer_; }

 private:
  const OpTable& table_;
  OpObserver& observer_;
};

}  // namespace bl
