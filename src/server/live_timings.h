#pragma once
#include <chrono>
#include <cstdint>
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
  bool has_tokens() const { return first_token_.has_value(); }
  // The tokens of the prompt that are computed or were found in the cache.
  std::int64_t prompt_done() const { return usage_.prompt_tokens; }
  // "prompt_progress": how far the prompt is.
  OrderedJson progress() const;
  OrderedJson json() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t prompt_tokens_;  // of the whole prompt
  Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> first_token_{};
  Usage usage_{};  // so far
};

// The timings of an answer that has cost this much.
OrderedJson llama_timings(const Usage& usage);

}  // namespace bl::server
