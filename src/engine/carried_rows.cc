#include "engine/carried_rows.h"

namespace bl {

std::int32_t CarriedRows::find(std::span<const Run> runs, const Sequence* sequence,
                               std::int64_t position) const {
  for (const Run& run : runs) {
    if (run.sequence != sequence || position < run.begin || position >= run.begin + run.count) {
      continue;
    }
    return static_cast<std::int32_t>(run.row + position - run.begin);
  }
  return static_cast<std::int32_t>(places_.zero());
}

void CarriedRows::join_step(std::span<const StepItem> items, StepBatch& batch) {
  if (memory_.empty()) return;
  CarriedStates& carried = batch.carried;
  carried.memory = memory_;
  std::vector<Run> left;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const StepItem& item = items[i];
    const std::int64_t begin = item.sequence->cached;
    carried.before.push_back(find(step_, item.sequence, begin - 1));
    // The next step begins behind the last right guess, which may be any of them.
    const std::int64_t count = item.logits == LogitRows::kAll ? item.count : 1;
    const auto row = static_cast<std::int64_t>(carried.kept.size());
    if (row + count > places_.zero()) continue;
    left.push_back({item.sequence, begin + item.count - count, count, row});
    for (std::int64_t k = item.count - count; k < item.count; ++k) {
      carried.kept.push_back(batch.sequences[i].first_token + static_cast<std::int32_t>(k));
    }
  }
  step_ = std::move(left);
  round_.clear();
}

void CarriedRows::join_round(std::span<const StepItem> items, StepBatch& batch) {
  if (memory_.empty()) return;
  CarriedStates& carried = batch.carried;
  carried.memory = memory_;
  carried.kept_at = static_cast<std::int32_t>(places_.drafts());
  std::vector<Run> left;
  for (const StepItem& item : items) {
    // The position before the token that this round reads.
    const std::int64_t position =
        item.sequence->cached - 1 + static_cast<std::int64_t>(item.guessed.size());
    carried.before.push_back(find(item.guessed.empty() ? step_ : round_, item.sequence, position));
    const auto row = static_cast<std::int32_t>(left.size());
    left.push_back({item.sequence, position + 1, 1, places_.drafts() + row});
    carried.kept.push_back(row);
  }
  round_ = std::move(left);
}

}  // namespace bl
