#pragma once
// Wraps a backend's op table and reports every op to an observer, for profiles.

#include <compare>
#include <cstdint>
#include <string_view>

#include "ops/op_table.h"

namespace bl {

// The sizes that decide how long an op takes; 0 if an op has no such size.
struct OpShape {
  std::int64_t tokens = 0;  // rows of activations
  std::int64_t in = 0;      // elements of a row that is read
  std::int64_t out = 0;     // elements of a row that is written, summed over all outputs
  std::int64_t keys = 0;    // attention: positions of the longest sequence
  auto operator<=>(const OpShape&) const = default;
};

struct OpCall {
  std::string_view op;  // the name of its member in OpTable, as a string literal
  OpShape shape;
  // The arguments of these two ops, valid until after() returns; null for others.
  const KvWriteArgs* kv_write = nullptr;
  const AttentionArgs* attention = nullptr;
};

// Hears of ops from a RecordingTable, in the thread that runs the step. Calls do not nest: an op
// that runs other ops counts as one.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  // Called right before an op is called, and right after it has returned. On a device the op is
  // only enqueued on the device's stream by then, so an observer for devices records an event in
  // each.
  virtual void before(ExecContext& ctx, const OpCall& call) = 0;
  virtual void after(ExecContext& ctx, const OpCall& call) = 0;
};

// Takes the place of another table in ExecContext::ops. It has exactly the ops that the other table
// has, with the same results. The question gemm_fusion is passed on and not reported.
class RecordingTable : public OpTable {
 public:
  // `table` and `observer` must outlive this.
  RecordingTable(const OpTable& table, OpObserver& observer);

  const OpTable& table() const { return table_; }
  OpObserver& observer() const { return observer_; }

 private:
  const OpTable& table_;
  OpObserver& observer_;
};

}  // namespace bl
