#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/open_request.h"
#include "engine/request.h"

namespace bl {

// Measures what one answer costs: its time in the queue, in prefill and in decoding, its tokens,
// and its rounds of speculation where the request records them.
//
// Invariant: the three times follow each other; the one in which the answer is over ends there, and
// those behind it are zero.
class UsageMeter {
 public:
  UsageMeter(EngineClock::time_point submitted, std::int64_t prompt_tokens);

  // The answer got its place. `cached`: tokens of its prompt that the cache had.
  void admit(EngineClock::time_point now, std::int64_t cached);
  // The cache had `tokens` more of the prompt, found after admission.
  void find(std::int64_t tokens);
  void prefill(std::int64_t tokens) { usage_.prefill_tokens += tokens; }
  // The first token is there.
  void finish_prompt(EngineClock::time_point now);
  void preempt() { ++usage_.preemptions; }
  void rewind() { ++usage_.rewinds; }
  // A step verifies `guesses`. `record`: DraftRound, as one more round.
  void begin_round(std::int64_t guesses, bool record);
  void accept_guess();
  std::int64_t rounds() const { return std::ssize(rounds_); }
  // The answer is over after `generated` tokens.
  void finish(EngineClock::time_point now, std::int64_t generated);

  const Usage& usage() const { return usage_; }
  std::vector<DraftRound> take_rounds() { return std::move(rounds_); }

 private:
  EngineClock::time_point submitted_;
  std::optional<EngineClock::time_point> admitted_;
  std::optional<EngineClock::time_point> first_token_;
  Usage usage_;
  std::vector<DraftRound> rounds_;
  bool records_ = false;  // the present round is the last of rounds_
};

}  // namespace bl
