#pragma once

namespace bl {

// What the ops of one backend need to know of the card or host that they run on: stream, limits,
// cached plans. Every backend derives its own from it, and only that backend's ops look inside.
// ExecContext carries it apart from the op table, so that a table that wraps another one (to
// record, time or capture ops) works with every backend.
class Device {
 public:
  virtual ~Device() = default;
};

}  // namespace bl
