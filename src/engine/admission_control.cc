#include "engine/admission_control.h"

#include <algorithm>

#include "ops/kv_layout.h"

namespace bl {
namespace {

// Waiting sequences that are looked at in a step beside those that could be admitted.
constexpr std::int64_t kLookAhead = 8;

}  // namespace

AdmissionControl::AdmissionControl(const Args& args)
    : choices_(args.choices),
      closer_(args.closer),
      cache_(args.cache),
      pool_(args.pool),
      limits_(args.limits) {}

SequenceState AdmissionControl::state_of(ScheduledSequence& sequence, bool exact_pages) const {
  SequenceState state = sequence.choice().state_of(sequence);
  if (!exact_pages) return state;
  if (state.running) {
    state.own_pages = sequence.own_pages(pool_);
  } else {
    state.shared_pages = sequence.shared_pages(cache_);
  }
  return state;
}

void AdmissionControl::line_up(Lineup& lineup) const {
  lineup.sequences.clear();
  lineup.state.sequences.clear();
  std::int64_t all = 0;
  std::int64_t running = 0;
  choices_.each_sequence([&](const ScheduledSequence& sequence) {
    ++all;
    running += sequence.is_running() ? 1 : 0;
  });
  const std::int32_t available = cache_.available();
  const bool may_be_short = available < 2 * running + limits_.step_tokens / kPageSlots + 1;
  const bool exact_pages = may_be_short || all > running;
  std::int64_t waiting = limits_.running - running + kLookAhead;
  lineup.state.available_pages = available;
  choices_.each_sequence([&](ScheduledSequence& sequence) {
    // Whoever is blocked hides nobody behind it.
    if (!sequence.is_running() && (sequence.choice().is_blocked() || --waiting < 0)) return;
    lineup.sequences.push_back(&sequence);
    lineup.state.sequences.push_back(state_of(sequence, exact_pages));
  });
}

bool AdmissionControl::admit(EngineClock::time_point now) {
  bool any_waits = false;
  choices_.each_sequence(
      [&](const ScheduledSequence& sequence) { any_waits |= !sequence.is_running(); });
  if (!any_waits) return false;
  line_up(lineup_);
  const AdmissionPlan plan = plan_admission(lineup_.state, limits_);
  for (const std::int32_t index : plan.preempted) preempt(lineup_.at(index));
  for (const std::int32_t index : plan.passed_over) lineup_.at(index).pass_over();
  for (const std::int32_t index : plan.admitted) start(lineup_.at(index), now);
  return !plan.admitted.empty() || !plan.preempted.empty();
}

void AdmissionControl::start(ScheduledSequence& sequence, EngineClock::time_point now) {
  Choice& choice = sequence.choice();
  if (choice.is_over()) return;  // the answer's other sequence has failed to start
  const bool is_first_time = sequence.admit();
  closer_.attempt(choice, [&] {
    sequence.adopt(cache_);
    if (!is_first_time) return;
    cache_.count(sequence.length(), sequence.cached());
    if (!sequence.is_guide()) choice.start(now);
  });
}

void AdmissionControl::preempt(ScheduledSequence& sequence) {
  sequence.choice().preempt(sequence, cache_);
  ++preemptions_;
}

// Only the best of those who wait may take a place, from whoever is blocked or behind it in rank.
bool AdmissionControl::would_repeat(std::int64_t items) const {
  std::int64_t running = 0;
  std::int64_t ready = 0;
  bool any_waits = false;
  bool any_gives_way = false;
  choices_.each_sequence([&](const ScheduledSequence& sequence) {
    const bool is_blocked = sequence.choice().is_blocked();
    if (!sequence.is_running()) {
      any_waits = any_waits || !is_blocked;
      return;
    }
    ++running;
    ready += is_blocked ? 0 : 1;
    any_gives_way = any_gives_way || is_blocked || any_waits;
  });
  return ready == items && (!any_waits || (running == limits_.running && !any_gives_way));
}

}  // namespace bl
