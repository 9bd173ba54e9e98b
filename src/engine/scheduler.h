#pragma once
// Decides who runs in the next step. These are pure functions of values: no pages are moved and no
// clock is read here, so that every rule is tested without a model
// (tests/engine/scheduler_test.cc).
//
// Goals: a step has a budget of tokens. Sequences that decode come first, each with one token; what
// is left of the budget goes to prompts in chunks of any length, in order of rank; no sequence
// starves. Guesses (drafts) come before prompts, but take at most half of what prompts could use,
// and no page that another sequence may need. Non-goals: when to stop a sequence, and which pages
// it gets.
//
// Order: the sequence of the smaller `rank` comes first, always. A rank never changes while a
// request lives and ranks rise with time, so that later requests stand behind an earlier one sooner
// or later, whatever their priority.
//
// Pages: a sequence is admitted when its whole known text fits beside what the running ones have
// been promised. Later growth is not reserved. When pages run out, the sequence of the worst rank
// gives up its pages, and computes again later what the cache has not kept. Only a sequence of
// better rank may take them, and one that finds none waits. So the best sequence always moves on,
// and in the end all do.

#include <cstdint>
#include <vector>

namespace bl {

struct SequenceState {
  double rank = 0;
  std::int64_t length = 0;        // tokens of its text
  std::int64_t cached = 0;        // computed tokens; 0 while it waits
  std::int32_t pages = 0;         // pages that it holds
  std::int32_t own_pages = 0;     // pages that it holds and nobody else uses
  std::int32_t shared_pages = 0;  // waiting: pages in use by others that would cost it nothing
  std::int32_t passed_over = 0;   // waiting: how often a younger one was admitted before it
  std::int32_t max_skips = 4;     // waiting: how often that may happen
  std::int64_t drafts = 0;        // decoding: guesses that are wanted behind its next token
  bool pairs_drafts = false;      // the next sequence gets as many guesses, or both get none
  bool running = false;           // may hold pages
  bool blocked = false;           // must not go on now
  bool every_row = false;         // wants the logits of every token, not only of the last
  bool is_second = false;         // waiting: a running one needs it, so it may use spare pages

  std::int64_t missing() const { return length - cached; }
};

struct SchedulerState {
  std::vector<SequenceState> sequences;
  std::int32_t available_pages = 0;  // free, or free after eviction
};

struct SchedulerLimits {
  std::int64_t step_tokens = 0;  // tokens per step
  std::int64_t logit_rows = 0;   // rows of logits per step; at least `running`
  std::int64_t running = 0;      // sequences at once; at most step_tokens
  std::int32_t spare_pages = 0;  // kept for running ones to grow into when another is admitted
};

// Sequences are given by their index in the state.
struct AdmissionPlan {
  std::vector<std::int32_t> preempted;  // give up their pages and wait, before others are admitted
  std::vector<std::int32_t> admitted;   // run from now on, in this order
  std::vector<std::int32_t> passed_over;  // did not fit while a younger one did
};
AdmissionPlan plan_admission(const SchedulerState& state, const SchedulerLimits& limits);

struct StepWork {
  std::int32_t sequence = 0;
  std::int64_t tokens = 0;  // how many of its next tokens to compute
  std::int64_t drafts = 0;  // guesses behind them, each with a row of logits
};
struct StepPlan {
  std::vector<std::int32_t> preempted;
  std::vector<StepWork> work;  // decoding sequences first
};
// Only running sequences get work. The pages for it are free once the preempted sequences have
// given up theirs.
StepPlan plan_step(const SchedulerState& state, const SchedulerLimits& limits);

}  // namespace bl
