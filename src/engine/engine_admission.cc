// EngineCore: who gets a place among those who run, and who gives up his.
#include <algorithm>
#include <vector>

#include "engine/engine_core.h"
#include "ops/kv_layout.h"

namespace bl {
namespace {

// So many waiting choices are looked at in a step beside those that could be admitted.
constexpr std::int64_t kLookAhead = 8;

}  // namespace

SequenceState EngineCore::state_of(Choice& choice, bool exact_pages) const {
  SequenceState s;
  s.rank = choice.open->rank;
  s.length = choice.length();
  s.cached = choice.sequence.cached;
  s.pages = static_cast<std::int32_t>(choice.sequence.pages.pages().size());
  s.running = choice.running;
  s.blocked = choice.blocked;
  s.every_row = choice.wants_prompt_rows();
  s.passed_over = choice.passed_over;
  s.max_skips = choice.open->request.max_skips;
  s.is_second = choice.main != nullptr || (choice.guide != nullptr && choice.guide->running);
  if (!exact_pages) return s;
  if (choice.running) {
    const PagePool& pool = model_.pool();
    for (const std::int32_t page : choice.sequence.pages.pages()) {
      s.own_pages += pool.references(page) == (pool.is_kept(page) ? 2 : 1) ? 1 : 0;
    }
  } else if (!s.every_row) {
    s.shared_pages = cache_.shared_pages(
        choice.open->salt, first_ids(choice.sequence, s.length - 1), choice.shared_beginning);
  }
  return s;
}

// The choices that a plan may be about, and what it needs to know of them.
SchedulerState EngineCore::state(std::vector<Choice*>& who) const {
  std::int64_t running = 0;
  for (const ChoicePtr& choice : choices_) running += choice->running ? 1 : 0;
  const bool may_be_short = cache_.available() < 2 * running + limits_.step_tokens / kPageSlots + 1;
  std::int64_t waiting = limits_.running - running + kLookAhead;
  const bool any_waits = static_cast<std::int64_t>(choices_.size()) > running;
  SchedulerState state;
  state.available_pages = cache_.available();
  for (const ChoicePtr& choice : choices_) {
    // Who waits for his reader, too, hides nobody behind him.
    const bool may_come = choice->leader == nullptr && !choice->blocked;
    if (!choice->running && (!may_come || --waiting < 0)) continue;
    who.push_back(choice.get());
    state.sequences.push_back(state_of(*choice, may_be_short || any_waits));
  }
  return state;
}

bool EngineCore::admit(EngineClock::time_point now) {
  if (std::all_of(choices_.begin(), choices_.end(),
                  [](const ChoicePtr& choice) { return choice->running; })) {
    return false;
  }
  std::vector<Choice*> who;
  const SchedulerState waiting = state(who);
  const AdmissionPlan plan = plan_admission(waiting, limits_);
  const auto at = [&](std::int32_t i) -> Choice& { return *who[static_cast<std::size_t>(i)]; };
  for (const std::int32_t index : plan.preempted) preempt(at(index));
  for (const std::int32_t index : plan.passed_over) ++at(index).passed_over;
  for (const std::int32_t index : plan.admitted) {
    Choice& choice = at(index);
    if (choice.over) continue;  // with the other text of a guided answer
    choice.running = true;
    choice.shared_beginning = {};
    choice.passed_over = 0;
    if (!attempt(choice, [&] { adopt(choice); })) continue;
    if (choice.admitted != EngineClock::time_point()) continue;
    choice.admitted = now;
    choice.usage.queue_seconds = seconds_between(choice.open->submitted, now);
    choice.usage.cached_tokens = choice.sequence.cached;
    choice.usage.cached_pages = choice.sequence.cached / kPageSlots;
    cache_.count(choice.length(), choice.sequence.cached);
    tell_start(choice);
  }
  sweep();
  return !plan.admitted.empty() || !plan.preempted.empty();
}

void EngineCore::tell_start(Choice& choice) {
  if (!choice.open->request.tell_start || choice.main != nullptr) return;
  attempt(choice, [&] {
    choice.open->sink().push(
        {.choice = choice.index,
         .started = Admission{choice.usage.cached_tokens, choice.usage.queue_seconds}});
  });
}

// Takes what the cache knows of a text that has just come to run, or whose next page another
// sequence may have computed in the meantime.
void EngineCore::adopt(Choice& choice) {
  // The last token is computed in any case: its logits are what comes next.
  if (choice.wants_prompt_rows()) return;
  Sequence& sequence = choice.sequence;
  sequence.cached = cache_.adopt(choice.open->salt, first_ids(sequence, choice.length() - 1),
                                 sequence.pages, choice.cursor);
}

void EngineCore::preempt(Choice& choice) {
  Sequence& sequence = choice.sequence;
  publish(choice, true);
  cache_.release(sequence.pages, choice.cursor);
  sequence.cached = 0;
  // It will be computed again: kept, it could be paired now and its twin with the token after it.
  choice.rows.clear();
  choice.running = false;
  choice.draft.memory.reset();
  if (!choice.prompt_told) choice.prompt_logprobs.clear();
  ++choice.usage.preemptions;
  ++stats_.preemptions;
}

// Whether a step planned now would be the present one again: everybody who may run is in it, and
// plan_admission() would give nobody who waits a place, be it another's. Only the best of those who
// wait may take one, from who is blocked or stands behind him in the order of ranks.
bool EngineCore::may_go_ahead() const {
  if (speculation_.on()) return false;
  std::int64_t running = 0;
  std::int64_t ready = 0;
  bool any_waits = false;
  bool any_gives_way = false;
  for (const ChoicePtr& choice : choices_) {
    if (!choice->running) {
      any_waits = any_waits || !choice->blocked;
      continue;
    }
    ++running;
    ready += choice->blocked ? 0 : 1;
    any_gives_way = any_gives_way || choice->blocked || any_waits;
  }
  return ready == static_cast<std::int64_t>(computed_.size()) &&
         (!any_waits || (running == limits_.running && !any_gives_way));
}

}  // namespace bl
