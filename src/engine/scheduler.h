#pragma once
// Who runs in the next step. Pure functions of values: no pages are moved and no clock is read
// here, so that every rule is tested without a model (tests/engine/scheduler_test.cc).
//
// Goals: a budget of tokens a step; sequences that decode go first, each with one token; what is
// left of the budget goes to prompts in chunks of any length, first come first served; nobody
// starves. Guesses (drafts) come before prompts but take no more than half of what prompts could
// use, and no page that anybody else may need. Non-goals: when to stop a sequence, which pages to
// use.
//
// Order. `rank` decides everything: the smaller comes first. It never changes while a request
// lives, so whoever comes later stands behind sooner or later, whatever his priority.
//
// Pages. A sequence is admitted when its whole known text fits beside what the running ones have
// been promised. Later growth is not reserved: when pages run out, the sequence of the worst rank
// gives up its own and computes them again later (those that the index still has excepted). Only
// sequences of better rank may take them, and a sequence that finds none stands still: so the best
// one always moves, and with it, in the end, all.

#include <cstdint>
#include <vector>

namespace bl {

struct SequenceState {
  double rank = 0;
  std::int64_t length = 0;        // tokens known
  std::int64_t cached = 0;        // of them computed; 0 while it waits
  std::int32_t pages = 0;         // held
  std::int32_t own_pages = 0;     // of them, that nobody else uses
  std::int32_t shared_pages = 0;  // waiting: pages in use by others that would cost it nothing
  std::int32_t passed_over = 0;   // waiting: times that a younger one was admitted before it
  std::int32_t max_skips = 4;     // … and how often that may be
  std::int64_t drafts = 0;        // decoding: guesses behind its next token, to be verified with it
  bool pairs_drafts = false;      // the next sequence gets equally many, or both none
  bool running = false;           // holds pages, or may
  bool blocked = false;           // must not go on now
  bool every_row = false;         // logits of every token, not of the last one only
  bool is_second = false;  // waiting: who runs can't go on without it, so spare pages are its

  std::int64_t missing() const { return length - cached; }
};

struct SchedulerState {
  std::vector<SequenceState> sequences;
  std::int32_t available_pages = 0;  // free or to be had by eviction
};

struct SchedulerLimits {
  std::int64_t step_tokens = 0;
  std::int64_t logit_rows = 0;   // at least `running`
  std::int64_t running = 0;      // sequences at once, at most step_tokens
  std::int32_t spare_pages = 0;  // kept for the running ones to grow when another is admitted
};

// Sequences by their index in the state.
struct AdmissionPlan {
  std::vector<std::int32_t> preempted;    // give up their pages and wait, before the others
  std::vector<std::int32_t> admitted;     // run from now on, in this order
  std::vector<std::int32_t> passed_over;  // did not fit while a younger one did
};
AdmissionPlan plan_admission(const SchedulerState& state, const SchedulerLimits& limits);

struct StepWork {
  std::int32_t sequence = 0;
  std::int64_t tokens = 0;  // the next ones that are not computed
  std::int64_t drafts = 0;  // guesses behind them; each takes a row of logits too
};
struct StepPlan {
  std::vector<std::int32_t> preempted;
  std::vector<StepWork> work;  // decoding sequences first
};
// Only running sequences get work; pages for it are there once the preempted have given up theirs.
StepPlan plan_step(const SchedulerState& state, const SchedulerLimits& limits);

}  // namespace bl
