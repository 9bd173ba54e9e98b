#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/choice.h"
#include "engine/scheduled_sequence.h"
#include "engine/step_model.h"

namespace bl {

// An item of a step, and whose it is; a plain value.
struct ComputedItem {
  ScheduledSequence* sequence = nullptr;  // null: its answer is over, and its row is dropped
  std::int64_t begin = 0;                 // the first token computed
  std::int64_t count = 0;
  LogitRows rows = LogitRows::kNone;
  std::int64_t drafts = 0;  // the last ones of `count`, which are guesses
  bool chosen_by_model = false;
};

// The step behind the one that is under way, enqueued before the tokens of that one are known
// (ADR 29). It computes the same answers, each one token further, except a few that cannot go on so
// soon and join the step behind it. What it computes for an answer that turns out to be over is
// dropped; it has written only behind the end of that text.
//
// Invariant: the items of a step under way refer to no answer that is over.
class StepAhead {
 public:
  StepAhead(StepModel& model, PrefixCache& cache) : model_(model), cache_(cache) {}

  bool under_way() const { return !items_.empty(); }
  // Puts a step's items into the order in which they can go ahead: those whose logits the host
  // wants come last.
  static void arrange(std::vector<StepItem>& items, std::vector<ComputedItem>& step);
  // Enqueues the step behind `step`, which is arranged and not taken yet, where all of its items or
  // nearly all may go on and the model can. Throws as StepModel::start does.
  void begin(std::span<const ComputedItem> step);
  // The answer is over, or its row is computed again by itself.
  void drop(const Choice& choice);
  // The step under way is the present one from now on: writes its items to `step` and counts their
  // tokens as cached.
  void become_present(std::vector<ComputedItem>& step);
  void forget() { items_.clear(); }

 private:
  StepModel& model_;
  PrefixCache& cache_;
  std::vector<ComputedItem> items_;
  std::vector<StepItem> asked_;
};

}  // namespace bl
