#include "engine/best_answers.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace bl {

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
  events.resize(static_cast<std::size_t>(open.request.sampling.n));
  events.front().prompt_logprobs = std::move(of_prompt);
  for (std::size_t i = 0; i < events.size(); ++i) {
    events[i].choice = static_cast<std::int32_t>(i);
    open.stream->push(std::move(events[i]));
  }
}

}  // namespace bl
