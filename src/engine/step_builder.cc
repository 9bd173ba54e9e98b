#include "engine/step_builder.h"

#include <algorithm>

namespace bl {

// What items take from the cache may make them shorter than planned, never longer.
void StepBuilder::build(const Lineup& lineup, const StepPlan& plan) {
  items_.clear();
  computed_.clear();
  constraints_.clear();
  // After this, add() cannot fail between the lists.
  items_.reserve(plan.work.size());
  computed_.reserve(plan.work.size());
  constraints_.reserve(plan.work.size());
  rows_left_ = logit_rows_;
  bool any_ended = false;
  for (const StepWork& work : plan.work) {
    ScheduledSequence& sequence = lineup.at(work.sequence);
    Choice& choice = sequence.choice();
    if (!choice.is_over()) closer_.attempt(choice, [&] { add(sequence, work); });
    any_ended = any_ended || choice.is_over();
  }
  if (any_ended) drop_ended();
  StepAhead::arrange(items_, computed_);
}

void StepBuilder::take(StepAhead& ahead) {
  items_.clear();
  ahead.become_present(computed_);
  constraints_.clear();
}

void StepBuilder::add(ScheduledSequence& sequence, const StepWork& work) {
  if ((work.tokens > 1 || sequence.waits_for_page()) && sequence.may_adopt()) {
    adopt(sequence);
    if (sequence.waits_for_page()) return;
  }
  Extent extent = extent_of(sequence, work.tokens);
  if (extent.count == 0 || !sequence.reserve(cache_, sequence.cached() + extent.count)) return;
  const std::int64_t planned = extent.count;
  if (work.drafts > 0) append_guesses(sequence, work.drafts, extent);
  rows_left_ -=
      extent.rows == LogitRows::kAll ? extent.count : (extent.rows == LogitRows::kLast ? 1 : 0);
  add_constraint(sequence, extent.rows);
  items_.push_back(sequence.item(extent.count, extent.rows));
  sequence.choice().let_model_choose(items_.back());
  computed_.push_back({.sequence = &sequence,
                       .begin = sequence.cached(),
                       .count = extent.count,
                       .rows = extent.rows,
                       .drafts = extent.count - planned,
                       .chosen_by_model = items_.back().sampling != nullptr});
}

// Another sequence may have computed the next pages of this text meanwhile.
void StepBuilder::adopt(ScheduledSequence& sequence) {
  const std::int64_t before = sequence.cached();
  sequence.adopt(cache_);
  if (sequence.was_preempted() || sequence.is_prompt_done()) return;
  const std::int64_t found = sequence.cached() - before;
  cache_.count_found(found);
  if (!sequence.is_guide()) sequence.choice().meter().find(found);
}

StepBuilder::Extent StepBuilder::extent_of(const ScheduledSequence& sequence,
                                           std::int64_t tokens) const {
  const std::int64_t count = std::min(tokens, sequence.length() - sequence.cached());
  if (sequence.wants_every_row()) return {std::min(count, rows_left_), LogitRows::kAll};
  if (sequence.cached() + count < sequence.length()) return {count, LogitRows::kNone};
  // The last token gives a row; it is left for a later step where no row is left.
  return rows_left_ > 0 ? Extent{count, LogitRows::kLast} : Extent{count - 1, LogitRows::kNone};
}

// Guesses stand behind one token, where rows and pages for all of them are left.
void StepBuilder::append_guesses(ScheduledSequence& sequence, std::int64_t most, Extent& extent) {
  const auto guesses = sequence.choice().draft().guesses();
  const std::int64_t count = std::min<std::int64_t>(most, std::ssize(guesses));
  if (count == 0 || extent.rows != LogitRows::kLast || extent.count != 1 || count >= rows_left_ ||
      !sequence.reserve(cache_, sequence.cached() + 1 + count)) {
    return;
  }
  sequence.append_guesses(guesses.first(static_cast<std::size_t>(count)));
  extent = {1 + count, LogitRows::kAll};
}

void StepBuilder::add_constraint(ScheduledSequence& sequence, LogitRows rows) {
  Constraint* const constraint = sequence.choice().sampler().constraint();
  if (sequence.is_guide() || constraint == nullptr || rows == LogitRows::kNone) return;
  constraints_.push_back(constraint);
}

// An answer that ended while its second sequence was added may have an item for the first one.
void StepBuilder::drop_ended() {
  constraints_.clear();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < computed_.size(); ++i) {
    ScheduledSequence& sequence = *computed_[i].sequence;
    if (sequence.choice().is_over()) continue;
    add_constraint(sequence, computed_[i].rows);
    items_[kept] = items_[i];
    computed_[kept++] = computed_[i];
  }
  items_.resize(kept);
  computed_.resize(kept);
}

}  // namespace bl
