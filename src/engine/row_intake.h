#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/choice_closer.h"
#include "engine/pinned_prefixes.h"
#include "engine/row_sampler.h"
#include "engine/step_ahead.h"
#include "engine/step_model.h"

namespace bl {

// Takes the rows that a step gives: those that become tokens go through the row sampler, unless the
// model has chosen already, and each token becomes part of its answer; rows of a prompt become its
// log-probabilities.
//
// Invariant: between two calls there are no tasks, and no answer has guesses behind its text.
class RowIntake {
 public:
  struct Args {
    PrefixCache& cache;
    StepAhead& ahead;
    PinnedPrefixes& pins;
    ChoiceCloser& closer;
    RowSampler sampler;
    std::span<const std::int32_t> end_tokens;  // the model's, sorted; must outlive it
  };
  explicit RowIntake(Args args);

  // `step`: what has been computed, in the order of the output's rows. What goes wrong with a row
  // ends its answer. Throws bad_alloc, which is the end of all answers in the step.
  void take(std::span<const ComputedItem> step, const StepOutput& output);

 private:
  std::int64_t add_rows(const ComputedItem& item, const StepOutput& output, std::int64_t row);
  void add_row(ScheduledSequence& sequence, std::int64_t token, const StepOutput& output,
               std::int64_t row);
  void add_pairs(Choice& choice);
  RowTask& add_task(Choice& owner);
  void compute_again(const ComputedItem& item);
  bool is_settled(std::size_t i) const;
  void take_task(std::size_t i);
  void take_token(Choice& choice, RowTask& task);
  std::string pin(Choice& choice);
  void finish_prompt(Choice& choice);

  PrefixCache& cache_;
  StepAhead& ahead_;
  PinnedPrefixes& pins_;
  ChoiceCloser& closer_;
  RowSampler sampler_;
  std::span<const std::int32_t> end_tokens_;
  std::vector<RowTask> tasks_;
  std::vector<Choice*> owners_;  // of each task; null once it is taken
};

}  // namespace bl
