#include "engine/speculation.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/guided_choice.h"

namespace bl {
namespace {

// Tokens of a text that a draft reads without taking noticeably longer.
constexpr std::int64_t kReadInARound = 8;

// Tokens that may come until it ends.
std::int64_t left_of(const Choice& choice) {
  const SamplingParams& sampling = choice.sampler.params();
  const std::int64_t left = choice.open->longest - choice.length();
  return sampling.max_tokens > 0 ? std::min(left, sampling.max_tokens - choice.generated()) : left;
}

bool decodes(const SequenceState& state) {
  return state.running && !state.blocked && state.missing() == 1;
}

// Guidance has a second row for each place.
std::int64_t rows_of_guess(const Choice& choice) { return choice.guide != nullptr ? 2 : 1; }

// How many guesses could be taken at most; 0: none may be made. The healing of a prompt has a mask
// that depends on what was said so far, and does without. A constraint gives its mask row by row,
// as these are drawn. A hook would see tokens behind an end that come to stand nowhere.
std::int64_t most_guesses(const Choice& choice, const SequenceState& state) {
  const Request& request = choice.open->request;
  if (!request.speculate || !decodes(state) || state.every_row) return 0;
  if (choice.generated() == 0 || choice.healing.active() || request.after_sampling) return 0;
  std::int64_t most = left_of(choice) - 1;
  if (!choice.open->held) {
    const std::int64_t unread = choice.open->stream->unread(choice.index);
    most = std::min(most, request.unread_tokens - unread - 1);
  }
  return std::max<std::int64_t>(most, 0);
}

}  // namespace

Speculation::Speculation(SpeculationOptions options, StepModel& model, PrefixCache& cache)
    : source_(std::move(options.source)), policy_(options.tokens), cache_(cache) {
  if (source_) source_->attach(model);
}

DraftJob Speculation::job_of(Choice& choice, std::int64_t most,
                             std::span<const std::int32_t> ends) const {
  const SamplingParams& sampling = choice.sampler.params();
  return {
      .text = choice.sequence.ids,
      .same = choice.draft.same,
      .most = most,
      .memory = &choice.draft.memory,
      .reach = choice.sequence.reach,
      .salt = choice.open->salt,
      .sampler = &choice.sampler,
      .generated = choice.generated(),
      .end_tokens = choice.open->request.ignore_end_tokens ? std::span<const std::int32_t>() : ends,
      .likeliest = sampling.greedy() && !edits_logits(sampling) && choice.device_sampled &&
                   choice.generated() >= sampling.min_tokens,
      .chosen_by_model = choice.device_sampled && choice.generated() >= sampling.min_tokens};
}

// Slots behind the texts, for the time of guessing: kept, they would be missing where the plan has
// promised them to others.
void Speculation::make_room(std::span<Choice* const> choices) {
  room_.clear();
  const std::int64_t slots = source_->slots_behind();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Sequence& sequence = choices[i]->sequence;
    room_.push_back(sequence.pages.capacity());
    if (slots == 0 || sequence.cached + 1 != choices[i]->length()) continue;
    if (cache_.reserve(sequence.pages, sequence.cached + slots)) jobs_[i].sequence = &sequence;
  }
}

void Speculation::give_room_back(std::span<Choice* const> choices) {
  for (std::size_t i = 0; i < room_.size(); ++i) choices[i]->sequence.pages.truncate(room_[i]);
}

// Reading what is missing of a text before the first guess.
double Speculation::entry_seconds(Choice& choice, std::int64_t most,
                                  std::span<const std::int32_t> ends) const {
  DraftState& draft = choice.draft;
  const double each = source_->read_seconds();
  if (each <= 0) return 0;
  if (!draft.memory && draft.unread < 0) draft.unread = source_->unread(job_of(choice, most, ends));
  const std::int64_t tokens = draft.memory ? choice.length() - draft.same : draft.unread;
  return tokens > kReadInARound ? each * static_cast<double>(tokens) : 0;
}

// jobs_ for asked_. A source that fails is not asked again; the answers go on without it. One that
// lacks memory has no guess now, and begins these texts anew.
bool Speculation::propose(std::span<Choice* const> choices) {
  const auto start = EngineClock::now();
  bool guessed = true;
  try {
    make_room(choices);
    source_->propose(jobs_);
  } catch (const std::bad_alloc&) {
    guessed = false;
  } catch (const std::exception& error) {
    failed_ = true;
    guessed = false;
    log_warning("speculation is off: the draft failed: {}", error.what());
  }
  give_room_back(choices);
  const double seconds = std::chrono::duration<double>(EngineClock::now() - start).count();
  seconds_ += seconds;
  step_.draft_seconds += seconds;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    DraftState& draft = choices[i]->draft;
    draft.same = guessed ? choices[i]->length() : 0;
    draft.ids.clear();
    if (!guessed) draft.memory.reset();
    if (!guessed) continue;
    draft.ids = std::move(jobs_[i].ids);
    draft.confidence = jobs_[i].confidence;
  }
  return guessed;
}

// Guesses that there is no memory for are not made.
void Speculation::wish(std::span<Choice* const> who, SchedulerState& state,
                       std::span<const std::int32_t> ends) {
  if (!on()) return;
  try {
    find_wishes(who, state, ends);
  } catch (const std::bad_alloc&) {
    for (SequenceState& sequence : state.sequences) sequence.drafts = 0;
  }
}

void Speculation::find_wishes(std::span<Choice* const> who, SchedulerState& state,
                              std::span<const std::int32_t> ends) {
  step_ = {};
  jobs_.clear();
  asked_.clear();
  places_.clear();
  candidates_.clear();
  std::int64_t rows = 0;
  std::int64_t guides = 0;
  for (std::size_t i = 0; i < who.size(); ++i) {
    SequenceState& sequence = state.sequences[i];
    who[i]->draft.ids.clear();
    who[i]->draft.count = 0;
    rows += decodes(sequence) ? 1 : 0;
    guides += decodes(sequence) && who[i]->main != nullptr ? 1 : 0;
    // A guide goes with its answer, which it stands behind. Guesses are for both where both need
    // but one row for the next token.
    if (who[i]->main != nullptr) continue;
    if (who[i]->guide != nullptr) {
      const bool both = i + 1 < who.size() && who[i + 1] == who[i]->guide;
      if (!both || !decodes(state.sequences[i + 1])) continue;
      sequence.pairs_drafts = true;
    }
    const std::int64_t most = std::min(most_guesses(*who[i], sequence), policy_.most());
    if (most == 0) continue;
    if (source_->is_free()) jobs_.push_back(job_of(*who[i], most, ends));
    asked_.push_back(who[i]);
    places_.push_back(i);
    candidates_.push_back({.habit = &who[i]->draft.habit,
                           .most = most,
                           .left = left_of(*who[i]),
                           .rows = rows_of_guess(*who[i]),
                           .entry_seconds = entry_seconds(*who[i], most, ends)});
  }
  if (asked_.empty()) return;
  if (source_->is_free()) {
    if (!propose(asked_)) return;
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      candidates_[i].confidence = asked_[i]->draft.confidence;
      candidates_[i].most = static_cast<std::int64_t>(asked_[i]->draft.ids.size());
    }
  }
  policy_.plan(candidates_, {.rows = rows,
                             .guides = guides,
                             .round_seconds = source_->round_seconds(),
                             .fixed_seconds = source_->fixed_seconds(),
                             .is_free = source_->is_free()});
  for (std::size_t i = 0; i < places_.size(); ++i) {
    state.sequences[places_[i]].drafts = candidates_[i].count;
  }
}

void Speculation::draft(std::span<Choice* const> who, const StepPlan& plan,
                        std::span<const std::int32_t> ends) {
  if (!on()) return;
  for (Choice* choice : who) choice->draft.count = 0;
  try {
    make_drafts(who, plan, ends);
  } catch (const std::bad_alloc&) {
    return;
  }
  for (const StepWork& work : plan.work) {
    Choice& choice = *who[static_cast<std::size_t>(work.sequence)];
    const auto guesses = static_cast<std::int64_t>(answer_of(choice).draft.ids.size());
    choice.draft.count = std::min(work.drafts, guesses);
  }
}

void Speculation::make_drafts(std::span<Choice* const> who, const StepPlan& plan,
                              std::span<const std::int32_t> ends) {
  if (source_->is_free()) return;  // they are there
  jobs_.clear();
  asked_.clear();
  for (const StepWork& work : plan.work) {
    Choice& choice = *who[static_cast<std::size_t>(work.sequence)];
    if (work.drafts == 0 || choice.main != nullptr) continue;
    jobs_.push_back(job_of(choice, work.drafts, ends));
    asked_.push_back(&choice);
  }
  if (!jobs_.empty()) propose(asked_);
}

void Speculation::settle(Choice& choice, std::int64_t drafted, std::int64_t accepted) {
  policy_.measured(choice.draft.habit, choice.draft.confidence, drafted, accepted);
  drafted_ += drafted;
  accepted_ += accepted;
  step_.draft_rows += drafted * rows_of_guess(choice);
  step_.accepted += accepted;
}

void Speculation::end_step(std::int64_t rows, std::int64_t guides) {
  step_.rows = rows;
  step_.guides = guides;
  policy_.step_done(step_);
}

void Speculation::compare(Choice& choice) {
  DraftState& draft = choice.draft;
  if (draft.ids.empty() || choice.length() != draft.same + 1) return;
  const bool right = choice.sequence.ids.back() == draft.ids.front();
  policy_.measured(draft.habit, draft.confidence, 1, right ? 1 : 0);
}

}  // namespace bl
