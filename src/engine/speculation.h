#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/choice.h"
#include "engine/draft_policy.h"
#include "engine/draft_source.h"
#include "engine/scheduler.h"
#include "engine/speculation_options.h"

namespace bl {

// The guessing in a step of the engine: who may, how much pays, what came of it.
//
// In a step, wish() comes before the plan and draft() after it; then the guesses stand behind the
// choice's text (Choice::drafted), their rows are drawn in order, and settle() takes what was
// wrong off again. A guess never changes a text: each token is the target's own draw, which depends
// on the seed, the place, and the text before it.
class Speculation {
 public:
  // The cache of the model's pages. Throws what DraftSource::attach throws.
  Speculation(SpeculationOptions options, StepModel& model, PrefixCache& cache);

  bool on() const { return source_ != nullptr && !failed_; }

  // Says in `state` how many guesses each of `who` would like to have verified.
  void wish(std::span<Choice* const> who, SchedulerState& state,
            std::span<const std::int32_t> ends);
  // Makes the guesses that the plan has room for (Choice::draft.ids).
  void draft(std::span<Choice* const> who, const StepPlan& plan,
             std::span<const std::int32_t> ends);

  // `accepted` of `drafted` guesses behind the choice's text were what it would have drawn.
  void settle(Choice& choice, std::int64_t drafted, std::int64_t accepted);
  // Nothing was verified though there was a guess: whether it would have been right.
  void compare(Choice& choice);
  // A step of nothing but decoding.
  void measured_step(std::int64_t rows, double seconds) { policy_.measured_step(rows, seconds); }
  // Any step, of so many sequences that decoded, `guides` of them guided answers' second ones, when
  // its guesses are settled.
  void end_step(std::int64_t rows, std::int64_t guides);

  std::int64_t drafted() const { return drafted_; }
  std::int64_t accepted() const { return accepted_; }
  double seconds() const { return seconds_; }

 private:
  DraftJob job_of(Choice& choice, std::int64_t most, std::span<const std::int32_t> ends) const;
  void find_wishes(std::span<Choice* const> who, SchedulerState& state,
                   std::span<const std::int32_t> ends);
  void make_drafts(std::span<Choice* const> who, const StepPlan& plan,
                   std::span<const std::int32_t> ends);
  bool propose(std::span<Choice* const> choices);
  void make_room(std::span<Choice* const> choices);
  void give_room_back(std::span<Choice* const> choices);
  double entry_seconds(Choice& choice, std::int64_t most, std::span<const std::int32_t> ends) const;

  std::shared_ptr<DraftSource> source_;
  DraftPolicy policy_;
  PrefixCache& cache_;
  bool failed_ = false;
  std::int64_t drafted_ = 0;
  std::int64_t accepted_ = 0;
  double seconds_ = 0;
  DraftPolicy::StepArgs step_;  // the present one
  std::vector<DraftJob> jobs_;
  std::vector<Choice*> asked_;
  std::vector<std::size_t> places_;
  std::vector<std::int64_t> room_;  // slots that each of asked_ has without what is lent to it
  std::vector<DraftPolicy::Candidate> candidates_;
};

}  // namespace bl
