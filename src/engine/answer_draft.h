#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/draft_policy.h"
#include "engine/draft_source.h"

namespace bl {

// What speculation keeps about one answer from step to step: the draft source's own memory of the
// text, how well guesses have done, and the guesses of the present step.
//
// Invariant: the first known() tokens of the text are as the source has seen them.
class AnswerDraft {
 public:
  DraftHabit& habit() { return habit_; }
  // The source's memory; null before its first guess. Goes with the answer.
  std::unique_ptr<DraftMemory>& memory() { return memory_; }
  std::int64_t known() const { return known_; }

  // The guesses for the tokens behind the text; all of them of one confidence.
  std::span<const std::int32_t> guesses() const { return guesses_; }
  std::size_t confidence() const { return confidence_; }
  void clear_guesses() { guesses_.clear(); }
  // The source has read a text of `length` tokens and guessed.
  void set_guesses(std::vector<std::int32_t> guesses, std::size_t confidence, std::int64_t length) {
    guesses_ = std::move(guesses);
    confidence_ = confidence;
    known_ = length;
  }
  // The source failed: it will read the text anew.
  void start_anew() {
    guesses_.clear();
    memory_.reset();
    known_ = 0;
  }
  // The answer is preempted; the source's memory would take space meanwhile.
  void drop_memory() { memory_.reset(); }
  // The text was cut to its first `tokens` tokens.
  void cut(std::int64_t tokens) { known_ = std::min(known_, tokens); }

  // Tokens that the source must read before its first guess, asked from it once.
  template <class Ask>
  std::int64_t unread(std::int64_t length, Ask&& ask) {
    if (memory_) return length - known_;
    if (unread_ < 0) unread_ = ask();
    return unread_;
  }

 private:
  DraftHabit habit_;
  std::unique_ptr<DraftMemory> memory_;
  std::int64_t known_ = 0;
  std::vector<std::int32_t> guesses_;
  std::size_t confidence_ = 0;
  std::int64_t unread_ = -1;  // −1: not asked yet
};

}  // namespace bl
