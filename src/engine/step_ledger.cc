#include "engine/step_ledger.h"

#include <algorithm>

#include "base/check.h"

namespace bl {

void StepLedger::count(std::span<const ComputedItem> step) {
  for (const ComputedItem& item : step) {
    if (item.sequence == nullptr) continue;
    closer_.attempt(item.sequence->choice(), [&] { count(item); });
  }
}

void StepLedger::count(const ComputedItem& item) {
  ScheduledSequence& sequence = *item.sequence;
  Choice& choice = sequence.choice();
  BL_DCHECK(sequence.cached() == item.begin + item.count);
  sequence.count_step();
  if (!sequence.is_guide()) choice.begin_round(item.drafts);
  if (choice.generated_in(sequence) == 0 || item.count - item.drafts > 1) {
    prefill_tokens_ += item.count;
    if (!sequence.is_guide()) choice.meter().prefill(item.count);
  } else {
    ++decode_tokens_;
  }
  if (sequence.is_guide() || sequence.is_prompt_done()) return;
  if (sequence.cached() < sequence.length()) {
    choice.writer().tell({.prompt_done = sequence.cached()});
  }
}

void StepLedger::settle(std::span<const ComputedItem> step, EngineClock::time_point start) {
  std::int64_t rows = 0;
  std::int64_t decoding = 0;
  std::int64_t guides = 0;
  for (const ComputedItem& item : step) {
    const bool is_one = item.count - item.drafts == 1;
    rows += item.count;
    decoding += is_one ? 1 : 0;
    guides += is_one && item.sequence->is_guide() ? 1 : 0;
    settle(item);
  }
  if (decoding == std::ssize(step)) {
    speculation_.measured_step(rows, seconds_between(start, EngineClock::now()));
  }
  speculation_.end_step(decoding, guides);
}

void StepLedger::settle(const ComputedItem& item) {
  ScheduledSequence& sequence = *item.sequence;
  Choice& choice = sequence.choice();
  if (item.drafts == 0) {
    if (!sequence.is_guide()) speculation_.compare(choice);
    return;
  }
  const std::int64_t right =
      std::clamp<std::int64_t>(sequence.cached() - item.begin - 1, 0, item.drafts);
  // Both sequences of a guided answer have the same guesses, which count once.
  if (!sequence.is_guide()) speculation_.settle(choice, item.drafts, right);
  decode_tokens_ += right;
  if (!choice.is_over()) sequence.cut(cache_, sequence.length());
}

void StepLedger::publish(std::span<const ComputedItem> step) noexcept {
  for (const ComputedItem& item : step) {
    if (item.sequence == nullptr || item.sequence->choice().is_over()) continue;
    // The row of a guided answer that waits for its other row was not looked at yet.
    const GuidedPair* const pair = item.sequence->choice().pair();
    if (pair != nullptr && pair->has_rows(*item.sequence)) continue;
    item.sequence->publish(cache_, false);
  }
}

}  // namespace bl
