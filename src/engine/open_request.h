#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/answer_text.h"
#include "engine/event_stream.h"
#include "engine/prompt_healing.h"
#include "engine/request.h"
#include "model/step_batch.h"
#include "sample/constraint.h"

namespace bl {

using EngineClock = std::chrono::steady_clock;
inline double seconds_between(EngineClock::time_point begin, EngineClock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// A request that the engine has accepted: a plain value, which RequestIntake completes on the
// thread of whoever asks. The engine's thread only reads it, except that each choice takes its
// constraint. The token lists in `request.sampling` are prepared (sampling_params.h) and shared by
// all choices.
struct OpenRequest {
  std::int32_t choices() const { return static_cast<std::int32_t>(request.sampling.answers()); }
  // Whether more choices are made than are returned (best_of). Then nothing is given to the reader
  // before all of them are over.
  bool keeps_best() const { return request.sampling.answers() > request.sampling.n; }

  Request request;
  std::int64_t number = 0;  // unique within the engine; rises with each request
  std::shared_ptr<EventStream> stream;
  double rank = 0;           // the scheduler's order: the smaller comes first
  std::string salt;          // pages are shared only between requests of equal salt
  AdapterMix adapters;       // keeps the adapters loaded
  std::int64_t longest = 0;  // tokens that prompt and answer may come to together
  bool by_limit = false;     // `longest` is the request's own limit, not the context's
  AnswerRules rules{};
  std::vector<std::unique_ptr<Constraint>> constraints{};  // one per choice, until it takes it
  std::shared_ptr<const HealedPrompt> healed{};            // null: the prompt stays as it is
  std::span<const std::int32_t> end_tokens{};              // the model's
  // With guidance: the second prompt, and how many tokens it is longer than the first.
  std::vector<std::int32_t> negative{};
  std::int64_t beyond = 0;
  std::shared_ptr<void> counted{};  // the request's share of EngineOptions::prompt_ids
  EngineClock::time_point submitted;
  std::optional<EngineClock::time_point> deadline;
};

}  // namespace bl
