#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/json.h"
#include "engine/request.h"

namespace bl::server {

// llama-server's "timings" of an answer, also while it is being made. With several choices they
// cover all of them.
class LiveTimings {
 public:
  explicit LiveTimings(std::int64_t prompt_tokens) : prompt_tokens_(prompt_tokens) {}

  // The choice is computed from now on; needs Request::tell_start.
  void start(const Admission& admission);
  void add(const Event& event);
  // Does what start() and add() do with an event, and calls `on_progress` whenever progress() says
  // something new: what was found in the cache, and then how much is computed. Choices share their
  // prompt: the first one that starts says what was found, and all say how much is computed.
  void follow(const Event& event, const std::function<void()>& on_progress);
  // "prompt_progress": how far the prompt is.
  OrderedJson progress() const;
  OrderedJson json() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t prompt_tokens_;  // of the whole prompt
  Clock::time_point start_ = Clock::now();
  bool is_started_ = false;
  std::optional<Clock::time_point> first_token_{};
  Usage usage_{};  // so far
};

// The timings of an answer that has cost this much.
OrderedJson llama_timings(const Usage& usage);

}  // namespace bl::server
