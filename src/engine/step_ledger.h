#pragma once
#include <cstdint>
#include <span>

#include "cache/prefix_cache.h"
#include "engine/choice_closer.h"
#include "engine/open_request.h"
#include "engine/speculation.h"
#include "engine/step_ahead.h"

namespace bl {

// Keeps account of what steps have computed: what is cached, which guesses were right, what others
// may find in the cache, and the sums that EngineStats shows.
//
// Invariant: after settle() and publish(), every sequence of the step holds pages only for what it
// has computed of its text, and what others can find is the text's.
class StepLedger {
 public:
  StepLedger(PrefixCache& cache, Speculation& speculation, ChoiceCloser& closer)
      : cache_(cache), speculation_(speculation), closer_(closer) {}

  // Before the rows of a step are taken: its items are computed.
  void count(std::span<const ComputedItem> step);
  // After they are taken, where guesses are made: drops those that were wrong, and tells the policy
  // how the step went, which began at `start`.
  void settle(std::span<const ComputedItem> step, EngineClock::time_point start);
  // At the end of a step. Not before, since a row that is broken says that its page is, and a row
  // that was lost is computed again, into a page that nobody else may hold.
  void publish(std::span<const ComputedItem> step) noexcept;

  std::int64_t prefill_tokens() const { return prefill_tokens_; }
  std::int64_t decode_tokens() const { return decode_tokens_; }

 private:
  void count(const ComputedItem& item);
  void settle(const ComputedItem& item);

  PrefixCache& cache_;
  Speculation& speculation_;
  ChoiceCloser& closer_;
  std::int64_t prefill_tokens_ = 0;
  std::int64_t decode_tokens_ = 0;
};

}  // namespace bl
