#include "engine/best_answers.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace bl {
namespace {

// What of the prompt was found, and when; what was computed again later stays whose it is. So does
// all of it where one has left before its prompt was there.
void swap_prompt_costs(Event& one, Event& other) {
  Usage& a = one.usage;
  Usage& b = other.usage;
  const std::int64_t more = b.cached_tokens - a.cached_tokens;
  if (a.prefill_tokens < more || b.prefill_tokens < -more) return;
  a.prefill_tokens -= more;
  b.prefill_tokens += more;
  std::swap(a.cached_tokens, b.cached_tokens);
  std::swap(a.cached_pages, b.cached_pages);
  std::swap(a.queue_seconds, b.queue_seconds);
  std::swap(a.prefill_seconds, b.prefill_seconds);
  if (one.started && other.started) std::swap(one.started, other.started);
}

}  // namespace

void give_best_answers(OpenRequest& open) {
  std::vector<Event> events;
  while (std::optional<Event> event = open.held->next(EngineClock::now())) {
    events.push_back(std::move(*event));
  }
  const auto score = [&](const Event& e) {
    return open.scores[static_cast<std::size_t>(e.choice)];
  };
  std::stable_sort(events.begin(), events.end(),
                   [&](const Event& a, const Event& b) { return score(a) > score(b); });
  std::vector<TokenLogprobs> of_prompt;
  for (Event& event : events) {
    if (!event.prompt_logprobs.empty()) of_prompt = std::move(event.prompt_logprobs);
    event.prompt_logprobs.clear();
  }
  // The prompt was computed once, for the first of them, and others found it in the cache.
  const auto first = std::find_if(events.begin(), events.end(),
                                  [](const Event& event) { return event.choice == 0; });
  swap_prompt_costs(events.front(), *first);
  events.resize(static_cast<std::size_t>(open.request.sampling.n));
  events.front().prompt_logprobs = std::move(of_prompt);
  for (std::size_t i = 0; i < events.size(); ++i) {
    events[i].choice = static_cast<std::int32_t>(i);
    open.stream->push(std::move(events[i]));
  }
}

}  // namespace bl
