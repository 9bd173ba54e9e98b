#include "engine/step_ahead.h"

#include <algorithm>
#include <utility>

#include "engine/model_choice.h"

namespace bl {
namespace {

// Who is left behind by a step ahead is half as fast meanwhile; so few may be that all together
// lose nothing.
constexpr std::ptrdiff_t kOthersForOneLeft = 2;

// An answer that decodes one token.
bool decodes_one(const ComputedItem& item) {
  return item.choice != nullptr && item.rows == LogitRows::kLast && item.count == 1 &&
         item.drafts == 0;
}

// Whether only its own token takes the host's time, so that it need not hold up others.
bool may_be_left(const ComputedItem& item) {
  return decodes_one(item) && !item.chosen_by_model && item.choice->guide == nullptr &&
         item.choice->main == nullptr;
}

// Whether an answer goes on behind the token that is being computed, as far as it can be known, and
// nothing but the model has a say in how.
bool goes_on(const ComputedItem& item) {
  if (item.choice == nullptr || item.rows != LogitRows::kLast || item.drafts > 0 ||
      !item.chosen_by_model) {
    return false;
  }
  const Choice& choice = *item.choice;
  const OpenRequest& open = *choice.open;
  const std::int64_t most = open.request.sampling.max_tokens;
  return !choice.held && !choice.over && choice.guide == nullptr && choice.main == nullptr &&
         choice.length() + 1 < open.longest && (most <= 0 || choice.generated() + 1 < most) &&
         open.sink().unread(choice.index) + 2 < open.request.unread_tokens;
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
    Sequence& sequence = item.choice->sequence;
    if (!cache_.reserve(sequence.pages, sequence.cached + 1)) return;
    asked_.push_back({.sequence = &sequence,
                      .count = 1,
                      .logits = LogitRows::kLast,
                      .adapters = &item.choice->open->adapters});
    let_model_choose(*item.choice, asked_.back());
  }
  if (!model_.repeat(asked_)) return;
  for (const ComputedItem& item : step) {
    items_.push_back({.choice = item.choice,
                      .begin = item.choice->sequence.cached,
                      .count = 1,
                      .rows = LogitRows::kLast,
                      .drafts = 0,
                      .chosen_by_model = true});
  }
}

void StepAhead::drop(const Choice& choice) {
  for (ComputedItem& item : items_) {
    if (item.choice == &choice) item.choice = nullptr;
  }
}

std::vector<ComputedItem> StepAhead::become_present() {
  for (const ComputedItem& item : items_) {
    if (item.choice != nullptr) ++item.choice->sequence.cached;
  }
  return std::exchange(items_, {});
}

}  // namespace bl
