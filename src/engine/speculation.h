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

// The guessing in a step of the engine: which answers may have guesses, how many pay, and what came
// of them.
//
// In a step, wish() comes before the plan and draft() after it. Then StepBuilder appends the
// guesses to the sequences, RowIntake draws their rows in order, and StepLedger reports to settle()
// how many were right. A guess never changes a text: each token is the target's own draw, which
// depends on the seed, the position, and the text before it.
//
// Invariant: a draft source that has failed is not asked again; the answers go on without it.
class Speculation {
 public:
  // `cache`: of the model's pages. Throws what DraftSource::attach throws.
  Speculation(SpeculationOptions options, StepModel& model, PrefixCache& cache);

  bool on() const { return source_ != nullptr && !failed_; }

  // Says in `state`, which is about `sequences`, how many guesses each of them would like to have
  // verified. `ends`: the model's end tokens, sorted. Without memory for guesses, there are none.
  void wish(std::span<ScheduledSequence* const> sequences, SchedulerState& state,
            std::span<const std::int32_t> ends);
  // Makes the guesses that the plan has room for (AnswerDraft::guesses).
  void draft(std::span<ScheduledSequence* const> sequences, const StepPlan& plan,
             std::span<const std::int32_t> ends);

  // `accepted` of the `drafted` guesses behind the answer's text were what it would have drawn.
  void settle(Choice& choice, std::int64_t drafted, std::int64_t accepted);
  // A guess of the answer was not verified, but shows now whether it would have been right.
  void compare(Choice& choice);
  // A step in which all sequences decoded, with `rows` rows, took `seconds`.
  void measured_step(std::int64_t rows, double seconds) { policy_.measured_step(rows, seconds); }
  // The guesses of a step are settled. `rows`: sequences that decoded in it; `guides`: how many of
  // them are the second ones of guided answers.
  void end_step(std::int64_t rows, std::int64_t guides);

  std::int64_t rounds() const {
    return rounds_;
  }  // settle() with guesses: of one answer in one step
  std::int64_t drafted() const { return drafted_; }
  std::int64_t accepted() const { return accepted_; }
  double seconds() const { return seconds_; }

 private:
  DraftJob job_of(Choice& choice, std::int64_t most, std::span<const std::int32_t> ends) const;
  void find_wishes(std::span<ScheduledSequence* const> sequences, SchedulerState& state,
                   std::span<const std::int32_t> ends);
  void find_candidates(std::span<ScheduledSequence* const> sequences, SchedulerState& state,
                       std::span<const std::int32_t> ends);
  void add_candidate(Choice& choice, const SequenceState& state, std::size_t place,
                     std::span<const std::int32_t> ends);
  bool propose();
  void make_room();
  void give_room_back();
  double entry_seconds(Choice& choice, std::int64_t most, std::span<const std::int32_t> ends) const;

  std::shared_ptr<DraftSource> source_;
  DraftPolicy policy_;
  PrefixCache& cache_;
  bool failed_ = false;
  std::int64_t rounds_ = 0;
  std::int64_t drafted_ = 0;
  std::int64_t accepted_ = 0;
  double seconds_ = 0;
  DraftPolicy::StepArgs step_;       // what the present step costs and brings
  DraftPolicy::PlanArgs planned_;    // the present step without guesses
  std::vector<Choice*> asked_;       // answers that the source is asked about
  std::vector<DraftJob> jobs_;       // for each of asked_
  std::vector<std::size_t> places_;  // of each of asked_ in the state
  std::vector<std::int64_t> room_;   // slots that each of asked_ has without what is lent to it
  std::vector<DraftPolicy::Candidate> candidates_;  // for each of asked_
};

}  // namespace bl
