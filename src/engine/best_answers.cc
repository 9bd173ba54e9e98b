#include "engine/best_answers.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace bl {
namespace {

// The first of the returned answers reports what the common prompt cost, which is what `other`
// computed. Work that was repeated after a preemption stays where it was done; so does everything
// when one of the two ended before its prompt was computed.
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

BestAnswers::BestAnswers(std::int32_t choices)
    : held_(choices, std::make_shared<Waker>()), scores_(static_cast<std::size_t>(choices), 0.0) {}

void BestAnswers::give(EventStream& reader, std::int64_t count) {
  std::vector<Event> events;
  while (std::optional<Event> event = held_.next(std::chrono::steady_clock::now())) {
    events.push_back(std::move(*event));
  }
  const auto score = [&](const Event& e) { return scores_[static_cast<std::size_t>(e.choice)]; };
  std::stable_sort(events.begin(), events.end(),
                   [&](const Event& a, const Event& b) { return score(a) > score(b); });
  std::vector<TokenLogprobs> of_prompt;
  for (Event& event : events) {
    if (!event.prompt_logprobs.empty()) of_prompt = std::move(event.prompt_logprobs);
    event.prompt_logprobs.clear();
  }
  // Choice 0 computed the prompt; the others found it in the cache.
  const auto first = std::find_if(events.begin(), events.end(),
                                  [](const Event& event) { return event.choice == 0; });
  swap_prompt_costs(events.front(), *first);
  events.resize(static_cast<std::size_t>(count));
  events.front().prompt_logprobs = std::move(of_prompt);
  for (std::size_t i = 0; i < events.size(); ++i) {
    events[i].choice = static_cast<std::int32_t>(i);
    reader.push(std::move(events[i]));
  }
}

}  // namespace bl
