#pragma once
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/json.h"
#include "engine/request.h"

namespace bl::server {

// llama-server's "timings", which its clients also look for in the answers of OpenAI's routes. They
// cover all choices of an answer; while it is streamed, they say how far it is.
class ChatTimings {
 public:
  // `per_token`: the request has "timings_per_token", so that every chunk with tokens has timings.
  ChatTimings(std::int64_t prompt_tokens, bool per_token);

  void add(const Event& event);
  // Whether the chunks that this event makes have timings; those that end a choice always have.
  bool wanted(const Event& event) const { return event.finish || (per_token_ && first_token_); }
  Json json() const;

 private:
  using Clock = std::chrono::steady_clock;
  bool per_token_;
  Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> first_token_;
  Usage usage_;
};

}  // namespace bl::server
