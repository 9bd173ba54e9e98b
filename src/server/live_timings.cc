#include "server/live_timings.h"

#include <algorithm>

#include "base/seconds_since.h"

namespace bl::server {
namespace {

constexpr double kMsInSecond = 1e3;

double per(double amount, double count) { return count > 0 ? amount / count : 0; }

}  // namespace

OrderedJson llama_timings(const Usage& usage) {
  const auto computed = static_cast<double>(usage.prompt_tokens - usage.cached_tokens);
  // The first token comes from the prompt's last step, so that it takes no step of its own.
  const auto steps = static_cast<double>(std::max<std::int64_t>(usage.generated_tokens - 1, 0));
  const double prompt_ms = usage.prefill_seconds * kMsInSecond;
  const double predicted_ms = usage.decode_seconds * kMsInSecond;
  OrderedJson timings = {{"cache_n", usage.cached_tokens},
                         {"prompt_n", usage.prompt_tokens - usage.cached_tokens},
                         {"prompt_ms", prompt_ms},
                         {"prompt_per_token_ms", per(prompt_ms, computed)},
                         {"prompt_per_second", per(computed, usage.prefill_seconds)},
                         {"predicted_n", usage.generated_tokens},
                         {"predicted_ms", predicted_ms},
                         {"predicted_per_token_ms", per(predicted_ms, steps)},
                         {"predicted_per_second", per(steps, usage.decode_seconds)}};
  if (usage.drafted_tokens > 0) {
    timings["draft_n"] = usage.drafted_tokens;
    timings["draft_n_accepted"] = usage.accepted_tokens;
  }
  return timings;
}

void LiveTimings::start(const Admission& admission) {
  is_started_ = true;
  start_ = Clock::now();
  usage_.cached_tokens = admission.cached_tokens;
  usage_.prompt_tokens = admission.cached_tokens;
}

void LiveTimings::add(const Event& event) {
  if (!first_token_) {
    usage_.prompt_tokens = std::max(usage_.prompt_tokens, event.prompt_done);
    usage_.prefill_seconds = seconds_since(start_);
  }
  if (!event.ids.empty() && !first_token_) {
    first_token_ = Clock::now();
    usage_.prompt_tokens = prompt_tokens_;
  }
  if (first_token_) usage_.decode_seconds = seconds_since(*first_token_);
  usage_.generated_tokens += static_cast<std::int64_t>(event.ids.size());
  if (!event.finish) return;
  // The engine has measured what was only watched from here.
  if (event.choice == 0) {
    usage_.prompt_tokens = prompt_tokens_;
    usage_.cached_tokens = event.usage.cached_tokens;
    usage_.prefill_seconds = event.usage.prefill_seconds;
  }
  usage_.decode_seconds = event.usage.decode_seconds;
  usage_.drafted_tokens += event.usage.drafted_tokens;
  usage_.accepted_tokens += event.usage.accepted_tokens;
}

void LiveTimings::follow(const Event& event, const std::function<void()>& on_progress) {
  if (event.started && !is_started_) {
    start(*event.started);
    on_progress();
  }
  const bool had_tokens = first_token_.has_value();
  const std::int64_t before = usage_.prompt_tokens;
  add(event);
  if (!had_tokens && usage_.prompt_tokens > before) on_progress();
}

OrderedJson LiveTimings::progress() const {
  return {{"total", prompt_tokens_},
          {"cache", usage_.cached_tokens},
          {"processed", usage_.prompt_tokens},
          {"time_ms", usage_.prefill_seconds * kMsInSecond}};
}

OrderedJson LiveTimings::json() const { return llama_timings(usage_); }

}  // namespace bl::server
