#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/choice.h"

namespace bl {

// The answers that the engine is making, waiting and running ones.
//
// Invariant: they are in the order of rank, the best first, and the choices of one request stand
// side by side in the order of their index. A choice that is over stays until sweep(), so that a
// step may refer to it.
class ChoiceList {
 public:
  const std::vector<std::unique_ptr<Choice>>& all() const { return choices_; }
  // Visits all sequences; the guide of an answer directly follows its text.
  template <class Visit>
  void each_sequence(Visit&& visit) const {
    for (const std::unique_ptr<Choice>& choice : choices_) choice->each_sequence(visit);
  }
  std::int64_t requests() const { return requests_; }  // with a choice that is not over

  // All choices of a new request. Throws bad_alloc, and then nothing has changed.
  void add(std::vector<std::unique_ptr<Choice>> made);
  // A choice has ended, `is_last` as the last one of its request.
  void count_ended(bool is_last) {
    any_over_ = true;
    requests_ -= is_last ? 1 : 0;
  }
  // Whether a choice has ended since the last sweep.
  bool any_over() const { return any_over_; }
  void sweep();

 private:
  std::vector<std::unique_ptr<Choice>> choices_;
  std::int64_t requests_ = 0;
  bool any_over_ = false;
};

}  // namespace bl
