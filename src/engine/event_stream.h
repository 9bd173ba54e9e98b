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

#include "engine/ready_callback.h"
#include "engine/request.h"

namespace bl {

// Lets the engine's thread sleep while there is nothing to do.
class Waker {
 public:
  void wake();
  // Returns once wake() has been called since the last wait, or when the time has come.
  void wait_until(std::optional<std::chrono::steady_clock::time_point> time);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool called_ = false;
};

// The events of one request on their way from the engine to their reader. Events that the reader
// has not taken yet are merged into one for each choice. A slow reader therefore costs memory for
// its own tokens only, and the engine never waits for a reader.
//
// One thread writes, the engine's; any number of threads may read.
class EventStream {
 public:
  // Short enough for a std::string to hold without allocating.
  static constexpr std::string_view kNoMemory = "out of memory";

  EventStream(std::int32_t choices, std::shared_ptr<Waker> waker);

  // --- the writer's side ---

  // Adds what is new; an event with `finish` is the last of its choice. Throws bad_alloc where
  // there is no memory for it, and then nothing has changed.
  void push(Event event);
  // Ends a choice that has not ended yet, where there was no memory for an ordinary last event.
  void end_without_memory(std::int32_t choice, const Usage& usage) noexcept;
  // Adds one token: push() for the hot path. Throws as push() does.
  void push_token(std::int32_t choice, std::int32_t id, std::string_view text);
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  std::int64_t unread(std::int32_t choice) const;  // tokens of the choice

  // --- the reader's side ---

  // Waits for an event until `deadline`, without one for ever. Returns nothing when the deadline
  // has come or the reader has taken everything.
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;
  std::optional<Event> next(Deadline deadline);
  bool over() const;  // the last event of every choice has been taken
  void cancel();
  // See RequestHandle::set_ready_callback(). An empty function: none.
  bool set_ready_callback(std::function<void()> callback);

 private:
  struct Pending {
    Event event;
    bool fresh = false;    // there is an event to take
    bool is_last = false;  // the choice's last event has been added
    std::atomic<std::int64_t> unread{0};
  };
  // These hold mutex_. A writer's returns whether the reader is to be called.
  bool add(Event event);
  bool add_token(std::int32_t choice, std::int32_t id, std::string_view text);
  bool add_end(std::int32_t choice, const Usage& usage);
  bool announce(Pending& pending);
  std::optional<Event> take();

  const std::shared_ptr<Waker> waker_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::unique_ptr<Pending[]> pending_;
  std::size_t choices_;
  std::size_t turn_ = 0;   // the choice that the next reader looks at first
  std::size_t fresh_ = 0;  // choices with an event to take
  std::size_t ended_ = 0;  // choices whose last event has been added …
  std::size_t taken_ = 0;  // … and taken
  int readers_ = 0;        // threads that wait in next()
  std::atomic<bool> cancelled_{false};
  ReadyCallback ready_;  // called without mutex_
};

}  // namespace bl
