#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/request.h"

namespace bl {

// Lets the engine's thread sleep while there is nothing to do.
class Waker {
 public:
  void wake();
  // Until wake() was called since the last wait, or the time has come.
  void wait_until(std::optional<std::chrono::steady_clock::time_point> time);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool called_ = false;
};

// What an engine tells the reader of one request. What the reader has not taken yet is kept as one
// event a choice, which grows: so a slow reader costs memory for his own tokens only, and the
// engine never waits for anybody.
//
// One writer, the engine; any number of readers.
class EventStream {
 public:
  // So short that a string holds it in itself.
  static constexpr std::string_view kNoMemory = "out of memory";

  EventStream(std::int32_t choices, std::shared_ptr<Waker> waker);

  // The writer's side. `event` holds what is new; with `finish` it is the last of its choice. Where
  // there is no memory for it, bad_alloc, and nothing has changed.
  void push(Event event);
  // The last event of a choice that has none yet, where there was no memory for another one.
  void end_without_memory(std::int32_t choice, const Usage& usage) noexcept;
  // For the hot path: one token. Throws like push().
  void push_token(std::int32_t choice, std::int32_t id, std::string_view text);
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  std::int64_t unread(std::int32_t choice) const;

  // The reader's side. Waits for an event until `deadline`; nothing when that has come or nothing
  // will follow.
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;
  std::optional<Event> next(Deadline deadline);
  bool over() const;  // every choice's last event has been taken
  void cancel();

 private:
  struct Pending {
    Event event;
    bool fresh = false;    // holds something
    bool is_last = false;  // has been given its last event
    std::atomic<std::int64_t> unread{0};
  };
  std::optional<Event> take();
  void announce(Pending& pending);

  const std::shared_ptr<Waker> waker_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::unique_ptr<Pending[]> pending_;
  std::size_t choices_;
  std::size_t turn_ = 0;   // the choice to look at first
  std::size_t taken_ = 0;  // last events taken
  int readers_ = 0;        // waiting
  std::atomic<bool> cancelled_{false};
};

}  // namespace bl
