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

// Prepares the masks of constrained choices while the model computes the rows that they are for: on
// a thread of its own, where the masks of the steps before took longer than waking it; else behind
// the model's step. The thread starts when it is first worth it; where it cannot, all masks are
// made behind the step.
class MaskWorker {
 public:
  using Loop = std::function<void()>;
  using Start = std::function<std::thread(Loop)>;
  // `start` makes the thread; what it throws means that there is none, and no harm is done.
  explicit MaskWorker(Start start = [](Loop loop) { return std::thread(std::move(loop)); })
      : start_(std::move(start)) {}
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;
  ~MaskWorker();

  // While it lives, the constraints are the worker's. At its end all are prepared: here, where the
  // worker has not come to them.
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
  std::span<Constraint* const> constraints_;  // that the thread works on; set by the turn's owner
  std::atomic<std::size_t> next_{0};          // of the present turn's
  std::atomic<std::int64_t> nanoseconds_{0};  // of preparing them
  double seconds_of_mask_ = 0;                // mean of late
  std::uint64_t turns_ = 0;
  bool working_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace bl
