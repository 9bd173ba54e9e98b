#include "engine/mask_worker.h"

#include <chrono>
#include <exception>

namespace bl {
namespace {

// What waking the worker and waiting for it costs the engine's thread, in seconds.
constexpr double kWakingSeconds = 40e-6;

}  // namespace

MaskWorker::~MaskWorker() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MaskWorker::prepare(std::span<Constraint* const> constraints) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = next_++; i < constraints.size(); i = next_++) constraints[i]->prepare();
  const auto taken = std::chrono::steady_clock::now() - begin;
  nanoseconds_ += std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count();
}

void MaskWorker::loop() {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || turns_ != seen; });
    if (stopping_) return;
    seen = turns_;
    const std::span<Constraint* const> mine = constraints_;
    if (mine.empty()) continue;  // the turn is over already
    working_ = true;
    lock.unlock();
    prepare(mine);
    lock.lock();
    working_ = false;
    changed_.notify_all();
  }
}

bool MaskWorker::has_thread() {
  if (thread_.joinable()) return true;
  try {
    thread_ = start_([this] { loop(); });
  } catch (const std::exception&) {
    // The system has no thread, or no memory for one, at the moment.
  }
  return thread_.joinable();
}

void MaskWorker::start(std::span<Constraint* const> constraints) {
  if (!has_thread()) return;
  {
    const std::lock_guard lock(mutex_);
    constraints_ = constraints;
    ++turns_;
  }
  changed_.notify_all();
}

MaskWorker::Turn::Turn(MaskWorker& worker, std::span<Constraint* const> constraints)
    : worker_(worker), constraints_(constraints) {
  if (constraints.empty()) return;
  worker.next_ = 0;
  worker.nanoseconds_ = 0;
  const double all = worker.seconds_of_mask_ * static_cast<double>(constraints.size());
  if (all > kWakingSeconds) worker.start(constraints);
}

MaskWorker::Turn::~Turn() {
  if (constraints_.empty()) return;
  worker_.prepare(constraints_);
  if (!worker_.constraints_.empty()) {
    std::unique_lock lock(worker_.mutex_);
    worker_.constraints_ = {};
    worker_.changed_.wait(lock, [&] { return !worker_.working_; });
  }
  const double mean =
      1e-9 * static_cast<double>(worker_.nanoseconds_) / static_cast<double>(constraints_.size());
  worker_.seconds_of_mask_ += 0.1 * (mean - worker_.seconds_of_mask_);
}

}  // namespace bl
