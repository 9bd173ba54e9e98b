#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "engine/best_answers.h"
#include "engine/event_stream.h"
#include "engine/open_request.h"
#include "engine/request.h"

namespace bl {

// What the choices of one request have in common. They share the request itself; all of them wait
// until choice 0 has computed the prompt, which they then find in the cache; and with best_of their
// events are kept until the last one is over.
//
// Invariant: once end_one() has been called for every choice, the reader has all that it will get.
class RequestAnswers {
 public:
  explicit RequestAnswers(std::shared_ptr<OpenRequest> open);

  const OpenRequest& open() const { return *open_; }
  std::shared_ptr<const SamplingParams> sampling() const {
    return {open_, &open_->request.sampling};
  }
  std::unique_ptr<Constraint> take_constraint(std::int32_t choice);  // null: none
  // Where choices write their events.
  EventStream& sink() { return best_ ? best_->sink() : *open_->stream; }

  // Whether a choice has to wait until choice 0 has computed the prompt.
  bool waits_for_prompt(std::int32_t choice) const { return choice > 0 && !prompt_is_there_; }
  // Choice 0 has computed the prompt, or will not any more.
  void stop_waiting() { prompt_is_there_ = true; }

  // With best_of: the mean log-probability of a choice's tokens, −∞ where it ended with an error.
  void set_score(std::int32_t choice, double score) noexcept;
  // A choice is over. True for the last one of the request; then the reader has got all events.
  // `usage`: the choice's, which events without memory for more carry.
  bool end_one(const Usage& usage) noexcept;

 private:
  std::shared_ptr<OpenRequest> open_;
  std::optional<BestAnswers> best_;
  std::int32_t unfinished_;  // choices that are not over
  bool prompt_is_there_ = false;
};

}  // namespace bl
