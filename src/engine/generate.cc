#include "engine/generate.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"

namespace bl {
namespace {

// The longest time for which a request to stop goes unnoticed.
constexpr std::chrono::milliseconds kLook{20};

Request request_of(const Engine& engine, const GeneratePrompt& prompt, std::size_t number,
                   const GenerateOptions& options) {
  const EncodeOptions encode{.add_special = options.add_special,
                             .parse_special = options.parse_special};
  Request request;
  request.prompt = engine.tokenizer().encode(prompt.text, encode);
  request.sampling = prompt.sampling.value_or(options.sampling);
  if (!prompt.sampling) request.sampling.seed += number;
  if (!prompt.negative.empty()) {
    request.negative_prompt = engine.tokenizer().encode(prompt.negative, encode);
  }
  request.constraint = prompt.constraint;
  request.adapters = options.adapters;
  request.skip_special = options.skip_special;
  if (options.cut_left) {
    const std::int64_t answer = std::max<std::int64_t>(request.sampling.max_tokens, 1);
    const std::int64_t room = std::max<std::int64_t>(engine.context() - answer, 1);
    const std::int64_t over = std::ssize(request.prompt) - room;
    if (over > 0) request.prompt.erase(request.prompt.begin(), request.prompt.begin() + over);
  }
  return request;
}

struct Asked {
  RequestHandle handle;
  std::int64_t choices;
};

// Waits for the answers of one request; nothing where it was asked to stop.
std::optional<std::vector<Answer>> answers_of(Asked& asked, const std::stop_token& stop) {
  std::vector<Answer> answers(static_cast<std::size_t>(asked.choices));
  while (!stop.stop_requested()) {
    std::optional<Event> event = asked.handle.next(kLook);
    if (event) {
      answers[static_cast<std::size_t>(event->choice)].add(std::move(*event));
    } else if (asked.handle.over()) {
      return answers;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Generated> generate(Engine& engine, std::span<const GeneratePrompt> prompts,
                                const GenerateOptions& options) {
  std::vector<Asked> asked;
  std::vector<Generated> all;
  // Takes the answers of the oldest open request. False where it was asked to stop.
  const auto take_next = [&] {
    Asked& next = asked[all.size()];
    std::optional<std::vector<Answer>> answers = answers_of(next, options.stop);
    if (!answers) return false;
    for (const Answer& answer : *answers) {
      if (answer.reason == FinishReason::kError) fail(answer.code, "{}", answer.error);
    }
    Generated one;
    one.text = (options.completion_only ? "" : prompts[all.size()].text) + answers->front().text;
    one.answers = std::move(*answers);
    all.push_back(std::move(one));
    return true;
  };
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Request request = request_of(engine, prompts[i], i, options);
    std::optional<RequestHandle> handle = engine.try_submit(request);
    for (; !handle; handle = engine.try_submit(request)) {
      if (options.stop.stop_requested()) return {};
      if (all.size() == asked.size()) {
        std::this_thread::sleep_for(kLook);  // requests of others fill the queue
      } else if (!take_next()) {
        return {};
      }
    }
    asked.push_back({std::move(*handle), request.sampling.n});
  }
  while (all.size() < asked.size()) {
    if (!take_next()) return {};
  }
  return all;
}

}  // namespace bl
