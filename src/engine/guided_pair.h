#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/scheduled_sequence.h"

namespace bl {

// Guidance (cfg_scale): an answer is chosen from two rows of logits, one behind its own text and
// one behind the same continuation of a negative prompt. The second sequence, the guide, is
// scheduled, paged and cached like any other; it has no reader and draws nothing. This class owns
// the guide, and the rows of both sequences until they can be paired.
//
// Invariant: after take_pairs(), at most one of the two sequences has rows here. After
// keep_waiting_row(), it has one row, in memory that outlives the step: only the row behind the
// text itself can wait for the other sequence's next step, since a guess is taken in its own step
// or never.
class GuidedPair {
 public:
  // `guide`: with is_guide.
  explicit GuidedPair(ScheduledSequence::Args guide) : guide_(std::move(guide)) {}

  ScheduledSequence& guide() { return guide_; }
  const ScheduledSequence& guide() const { return guide_; }

  // The next row of one of the two: behind its text, then behind each of its guesses. `row`
  // [vocab] stays valid until the end of the step.
  void add_row(const ScheduledSequence& of, std::span<const float> row) {
    (of.is_guide() ? guide_rows_ : text_rows_).push_back(row);
  }
  bool has_rows(const ScheduledSequence& of) const {
    return !(of.is_guide() ? guide_rows_ : text_rows_).empty();
  }
  // Calls take(row of the text, row of the guide) for each place that both have a row for, in
  // order. Drops all rows once there was such a place.
  template <class Take>
  void take_pairs(Take&& take) {
    const std::size_t pairs = std::min(text_rows_.size(), guide_rows_.size());
    for (std::size_t i = 0; i < pairs; ++i) take(text_rows_[i], guide_rows_[i]);
    if (pairs > 0) forget_rows();
  }
  // At the end of a step, whose rows are about to go: keeps a copy of the one that waits. Throws
  // bad_alloc.
  void keep_waiting_row();
  void forget_rows();
  // `of` will compute its row again.
  void forget_rows(const ScheduledSequence& of) {
    (of.is_guide() ? guide_rows_ : text_rows_).clear();
  }

 private:
  ScheduledSequence guide_;
  std::vector<std::span<const float>> text_rows_;
  std::vector<std::span<const float>> guide_rows_;
  std::vector<float> waiting_row_;
};

}  // namespace bl
