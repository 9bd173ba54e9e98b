#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "sample/constraint.h"

namespace bl {

// Prepares the masks of constrained answers while the model computes the rows that they are for: on
// a thread of its own, if the masks of recent steps took longer than waking that thread does, or
// else after the model's step. The thread starts when it is first worth it; where it cannot be
// started, all masks are made after the step.
//
// Invariant: outside a Turn the worker touches no constraint.
class MaskWorker {
 public:
  using Loop = std::function<void()>;
  using Start = std::function<std::thread(Loop)>;
  // `start` makes the thread. Where it throws, there is none, and everything works without.
  explicit MaskWorker(Start start = [](Loop loop) { return std::thread(std::move(loop)); })
      : start_(std::move(start)) {}
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;
  ~MaskWorker();

  // While a turn lives, its constraints belong to the worker. Its end prepares those that the
  // worker has not come to, and waits for the worker.
  class Turn {
   public:
    Turn(MaskWorker& worker, std::span<Constraint* const> constraints);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();

   private:
    MaskWorker& worker_;
    std::span<Constraint* const> constraints_;
  };

 private:
  bool has_thread();
  void start(std::span<Constraint* const> constraints);
  void loop();
  void prepare(std::span<Constraint* const> constraints);

  Start start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::span<Constraint* const> constraints_;  // what the thread works on; set by the turn's owner
  std::atomic<std::size_t> next_{0};          // the constraint to prepare next in this turn
  std::atomic<std::int64_t> nanoseconds_{0};  // time spent on preparing in this turn
  double seconds_of_mask_ = 0;                // running mean of recent turns
  std::uint64_t turns_ = 0;
  bool working_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bl
