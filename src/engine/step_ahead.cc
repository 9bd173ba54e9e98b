#include "engine/step_ahead.h"

#include <algorithm>
#include <utility>

namespace bl {
namespace {

// An answer that is left behind runs at half its speed meanwhile. So there must be this many
// others for each, for all together to lose nothing.
constexpr std::ptrdiff_t kOthersForOneLeft = 2;

// Whether the item decodes one token.
bool decodes_one(const ComputedItem& item) {
  return item.sequence != nullptr && item.rows == LogitRows::kLast && item.count == 1 &&
         item.drafts == 0;
}

// Whether an item that cannot go ahead need not hold up the others: nothing but choosing its own
// token takes the host's time.
bool may_be_left(const ComputedItem& item) {
  return decodes_one(item) && !item.chosen_by_model && !item.sequence->choice().is_guided();
}

// Whether the answer goes on behind the token that is being computed, as far as that can be known,
// and only the model decides how.
bool goes_on(const ComputedItem& item) {
  if (item.sequence == nullptr || item.rows != LogitRows::kLast || item.drafts > 0 ||
      !item.chosen_by_model) {
    return false;
  }
  const Choice& choice = item.sequence->choice();
  const OpenRequest& open = choice.open();
  const std::int64_t most = open.request.sampling.max_tokens;
  return !choice.writer().holds() && !choice.is_over() && !choice.is_guided() &&
         choice.text().length() + 1 < open.longest &&
         (most <= 0 || choice.generated() + 1 < most) &&
         choice.writer().unread() + 2 < open.request.unread_tokens;
}

}  // namespace

void StepAhead::arrange(std::vector<StepItem>& items, std::vector<ComputedItem>& step) {
  if (!std::all_of(step.begin(), step.end(), decodes_one)) return;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (!step[i].chosen_by_model) continue;
    std::swap(items[i], items[chosen]);
    std::swap(step[i], step[chosen++]);
  }
}

void StepAhead::begin(std::span<const ComputedItem> step) {
  items_.clear();
  const auto left = std::find_if_not(step.begin(), step.end(), goes_on);
  const auto going = left - step.begin();
  if (going == 0 || going < kOthersForOneLeft * (step.end() - left)) return;
  if (!std::all_of(left, step.end(), may_be_left)) return;
  step = step.first(static_cast<std::size_t>(going));
  asked_.clear();
  for (const ComputedItem& item : step) {
    ScheduledSequence& sequence = *item.sequence;
    if (!sequence.reserve(cache_, sequence.cached() + 1)) return;
    asked_.push_back(sequence.item(1, LogitRows::kLast));
    sequence.choice().let_model_choose(asked_.back());
  }
  if (!model_.repeat(asked_)) return;
  for (const ComputedItem& item : step) {
    items_.push_back({.sequence = item.sequence,
                      .begin = item.sequence->cached(),
                      .count = 1,
                      .rows = LogitRows::kLast,
                      .drafts = 0,
                      .chosen_by_model = true});
  }
}

void StepAhead::drop(const Choice& choice) {
  for (ComputedItem& item : items_) {
    if (item.sequence != nullptr && &item.sequence->choice() == &choice) item.sequence = nullptr;
  }
}

void StepAhead::become_present(std::vector<ComputedItem>& step) {
  for (const ComputedItem& item : items_) {
    if (item.sequence != nullptr) item.sequence->count_step_ahead();
  }
  step.swap(items_);
  items_.clear();
}

}  // namespace bl
