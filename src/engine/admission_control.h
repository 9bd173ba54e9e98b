#pragma once
#include <cstdint>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/choice_closer.h"
#include "engine/choice_list.h"
#include "engine/scheduled_sequence.h"
#include "engine/scheduler.h"

namespace bl {

// The sequences that a plan may be about, and what the scheduler knows about each; a plain value.
struct Lineup {
  ScheduledSequence& at(std::int32_t i) const { return *sequences[static_cast<std::size_t>(i)]; }

  std::vector<ScheduledSequence*> sequences;
  SchedulerState state;  // of the same sequences in the same order
};

// Carries out who runs and who gives up its pages, as the scheduler plans it (scheduler.h).
//
// Invariant: at most `limits.running` sequences run, and no other sequence holds pages.
class AdmissionControl {
 public:
  struct Args {
    const ChoiceList& choices;
    ChoiceCloser& closer;
    PrefixCache& cache;
    const PagePool& pool;
    SchedulerLimits limits;
  };
  explicit AdmissionControl(const Args& args);

  // Fills `lineup` with all running sequences and the first of those that wait.
  void line_up(Lineup& lineup) const;
  // Gives places to sequences that wait; the best of them may take that of a running one. Whether
  // anything has changed.
  bool admit(EngineClock::time_point now);
  void preempt(ScheduledSequence& sequence);
  // Whether a step planned now would be the present one again, which has `items` items: everybody
  // who may run is in it, and nobody who waits would get a place.
  bool would_repeat(std::int64_t items) const;

  std::int64_t preemptions() const { return preemptions_; }

 private:
  SequenceState state_of(ScheduledSequence& sequence, bool exact_pages) const;
  void start(ScheduledSequence& sequence, EngineClock::time_point now);

  const ChoiceList& choices_;
  ChoiceCloser& closer_;
  PrefixCache& cache_;
  const PagePool& pool_;
  const SchedulerLimits limits_;
  Lineup lineup_;  // of admit()
  std::int64_t preemptions_ = 0;
};

}  // namespace bl
