#pragma once
#include <cstdint>
#include <vector>

#include "engine/event_stream.h"

namespace bl {

// The answers of a request with best_of, until it is known which of them are the best.
//
// Invariant: events of all choices are kept here, and none has reached the reader, until give().
class BestAnswers {
 public:
  explicit BestAnswers(std::int32_t choices);

  // Where every choice writes its events.
  EventStream& sink() { return held_; }
  // The mean log-probability of a choice that is over; −∞ for one that is not to be chosen.
  void set_score(std::int32_t choice, double score) {
    scores_[static_cast<std::size_t>(choice)] = score;
  }
  // After all choices are over: writes the `count` best ones to `reader` as choices 0 … count − 1,
  // in the order of their scores. Throws bad_alloc.
  void give(EventStream& reader, std::int64_t count);

 private:
  EventStream held_;
  std::vector<double> scores_;  // by choice
};

}  // namespace bl
