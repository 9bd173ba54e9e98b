#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/choice.h"
#include "engine/step_model.h"

namespace bl {

// An item of a step, and whose it is.
struct ComputedItem {
  Choice* choice = nullptr;  // null: of an answer that is over
  std::int64_t begin = 0;    // first token computed
  std::int64_t count = 0;
  LogitRows rows = LogitRows::kNone;
  std::int64_t drafts = 0;  // of count, the last ones
  bool chosen_by_model = false;
};

// The step behind the one that is under way, enqueued before anybody knows that one's tokens: the
// same answers, each one token further, but for a few that cannot go on so soon and join the step
// behind it (ADR 29). What it computes for an answer that turns out to
// be over is dropped; it has written behind the end of that text alone.
class StepAhead {
 public:
  StepAhead(StepModel& model, PrefixCache& cache) : model_(model), cache_(cache) {}

  bool under_way() const { return !items_.empty(); }
  // The order in which a step's items can go ahead: those whose logits the host wants come last.
  static void arrange(std::vector<StepItem>& items, std::vector<ComputedItem>& step);
  // Begins it behind `step`, which is arranged and not taken yet, where its items may go on, all or
  // nearly, and the model can. Throws as StepModel::start does.
  void begin(std::span<const ComputedItem> step);
  // The answer is over.
  void drop(const Choice& choice);
  // What is under way is the present step from here on: `cached` counts its tokens.
  std::vector<ComputedItem> become_present();
  void forget() { items_.clear(); }

 private:
  StepModel& model_;
  PrefixCache& cache_;
  std::vector<ComputedItem> items_;
  std::vector<StepItem> asked_;
};

}  // namespace bl
