#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/admission_control.h"
#include "engine/choice_closer.h"
#include "engine/scheduler.h"
#include "engine/step_ahead.h"
#include "engine/step_model.h"
#include "sample/constraint.h"

namespace bl {

// Makes the present step of a plan: takes what the cache has of the texts, reserves pages, appends
// guesses, and says which rows are wanted.
//
// Invariant: items() and computed() have an entry for the same sequence at each index, in the order
// in which the step can go ahead; constraints() are those of the answers whose rows need a mask. A
// step that was enqueued ahead has no items(): the model has them already.
class StepBuilder {
 public:
  // A step gives at most `logit_rows` rows.
  StepBuilder(PrefixCache& cache, ChoiceCloser& closer, std::int64_t logit_rows)
      : cache_(cache), closer_(closer), logit_rows_(logit_rows) {}

  // `plan` is about `lineup`. An answer whose part fails ends, and is not in the step. Throws
  // bad_alloc.
  void build(const Lineup& lineup, const StepPlan& plan);
  // The step that `ahead` has under way is the present one.
  void take(StepAhead& ahead);

  std::span<const StepItem> items() const { return items_; }
  std::span<const ComputedItem> computed() const { return computed_; }
  std::span<Constraint* const> constraints() const { return constraints_; }

 private:
  // How much of a sequence is computed, and the rows that are wanted of it.
  struct Extent {
    std::int64_t count = 0;
    LogitRows rows = LogitRows::kNone;
  };
  void add(ScheduledSequence& sequence, const StepWork& work);
  void adopt(ScheduledSequence& sequence);
  Extent extent_of(const ScheduledSequence& sequence, std::int64_t tokens) const;
  void append_guesses(ScheduledSequence& sequence, std::int64_t most, Extent& extent);
  void add_constraint(ScheduledSequence& sequence, LogitRows rows);
  void drop_ended();

  PrefixCache& cache_;
  ChoiceCloser& closer_;
  std::int64_t logit_rows_;
  std::int64_t rows_left_ = 0;  // that the items so far leave
  std::vector<StepItem> items_;
  std::vector<ComputedItem> computed_;
  std::vector<Constraint*> constraints_;
};

}  // namespace bl
