#include "engine/speculation.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace bl {
namespace {

// A draft reads so many tokens of a text without taking noticeably longer.
constexpr std::int64_t kReadInARound = 8;

// Tokens that the answer may still get.
std::int64_t left_of(const Choice& choice) {
  const SamplingParams& sampling = choice.sampler().params();
  const std::int64_t left = choice.open().longest - choice.text().length();
  return sampling.max_tokens > 0 ? std::min(left, sampling.max_tokens - choice.generated()) : left;
}

bool decodes(const SequenceState& state) {
  return state.running && !state.blocked && state.missing() == 1;
}

// With guidance there is a second row for each place.
std::int64_t rows_of_guess(const Choice& choice) { return choice.is_guided() ? 2 : 1; }

// How many guesses could be taken at most; 0: none may be made. Token healing has none, since its
// mask depends on what was said so far, whereas a constraint gives its mask row by row, as these
// are drawn. Answers with a hook have none, since it would see tokens that never come to stand.
std::int64_t most_guesses(const Choice& choice, const SequenceState& state) {
  const Request& request = choice.open().request;
  if (!request.speculate || !decodes(state) || state.every_row) return 0;
  if (choice.generated() == 0 || choice.sampler().healing().active() || request.after_sampling) {
    return 0;
  }
  std::int64_t most = left_of(choice) - 1;
  if (!choice.open().keeps_best()) {
    most = std::min(most, request.unread_tokens - choice.writer().unread() - 1);
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
  const SamplingParams& sampling = choice.sampler().params();
  const bool by_model =
      choice.sampler().may_sample_on_device() && choice.generated() >= sampling.min_tokens;
  return {.text = choice.text().ids(),
          .same = choice.draft().known(),
          .most = most,
          .memory = &choice.draft().memory(),
          .reach = choice.text().sequence().reach,
          .salt = choice.open().salt,
          .sampler = &choice.sampler().chain(),
          .generated = choice.generated(),
          .rewinds = choice.rewinds(),
          .end_tokens = choice.ends(ends),
          .likeliest = by_model && sampling.greedy() && !edits_logits(sampling),
          .chosen_by_model = by_model};
}

// Slots behind the texts, only while guesses are made: kept, they would be missing where the plan
// has promised them to others.
void Speculation::make_room() {
  room_.clear();
  const std::int64_t slots = source_->slots_behind();
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    ScheduledSequence& text = asked_[i]->text();
    room_.push_back(text.sequence().pages.capacity());
    if (slots == 0 || text.cached() + 1 != text.length()) continue;
    if (text.reserve(cache_, text.cached() + slots)) jobs_[i].sequence = &text.sequence();
  }
}

void Speculation::give_room_back() {
  for (std::size_t i = 0; i < room_.size(); ++i) {
    asked_[i]->text().sequence().pages.truncate(room_[i]);
  }
}

// What it costs to read the missing part of a text before the first guess.
double Speculation::entry_seconds(Choice& choice, std::int64_t most,
                                  std::span<const std::int32_t> ends) const {
  const double each = source_->read_seconds();
  if (each <= 0) return 0;
  const std::int64_t tokens = choice.draft().unread(
      choice.text().length(), [&] { return source_->unread(job_of(choice, most, ends)); });
  return tokens > kReadInARound ? each * static_cast<double>(tokens) : 0;
}

// Runs jobs_, which are about asked_. A source that lacks memory has no guess now, and begins these
// texts anew.
bool Speculation::propose() {
  const auto start = EngineClock::now();
  bool has_guessed = true;
  try {
    make_room();
    source_->propose(jobs_);
  } catch (const std::bad_alloc&) {
    has_guessed = false;
  } catch (const std::exception& error) {
    failed_ = true;
    has_guessed = false;
    log_warning("speculation is off: the draft failed: {}", error.what());
  }
  give_room_back();
  const double seconds = seconds_between(start, EngineClock::now());
  seconds_ += seconds;
  step_.draft_seconds += seconds;
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    AnswerDraft& draft = asked_[i]->draft();
    if (has_guessed) {
      draft.set_guesses(std::move(jobs_[i].ids), jobs_[i].confidence, asked_[i]->text().length());
    } else {
      draft.start_anew();
    }
  }
  return has_guessed;
}

void Speculation::wish(std::span<ScheduledSequence* const> sequences, SchedulerState& state,
                       std::span<const std::int32_t> ends) {
  if (!on()) return;
  try {
    find_wishes(sequences, state, ends);
  } catch (const std::bad_alloc&) {
    for (SequenceState& sequence : state.sequences) sequence.drafts = 0;
  }
}

void Speculation::find_wishes(std::span<ScheduledSequence* const> sequences, SchedulerState& state,
                              std::span<const std::int32_t> ends) {
  step_ = {};
  find_candidates(sequences, state, ends);
  if (asked_.empty()) return;
  if (source_->is_free()) {
    if (!propose()) return;
    for (std::size_t i = 0; i < asked_.size(); ++i) {
      const AnswerDraft& draft = asked_[i]->draft();
      candidates_[i].confidence = draft.confidence();
      candidates_[i].most = std::ssize(draft.guesses());
    }
  }
  planned_.round_seconds = source_->round_seconds();
  planned_.fixed_seconds = source_->fixed_seconds();
  planned_.is_free = source_->is_free();
  policy_.plan(candidates_, planned_);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    state.sequences[places_[i]].drafts = candidates_[i].count;
  }
}

// Who may have guesses in this step, and what the step is without them.
void Speculation::find_candidates(std::span<ScheduledSequence* const> sequences,
                                  SchedulerState& state, std::span<const std::int32_t> ends) {
  planned_ = {};
  jobs_.clear();
  asked_.clear();
  places_.clear();
  candidates_.clear();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    SequenceState& own = state.sequences[i];
    const bool is_guide = sequences[i]->is_guide();
    planned_.rows += decodes(own) ? 1 : 0;
    planned_.guides += is_guide && decodes(own) ? 1 : 0;
    if (is_guide) continue;
    Choice& choice = sequences[i]->choice();
    choice.draft().clear_guesses();
    if (choice.is_guided()) {
      // Both sequences get guesses, where both need only one row for the next token.
      const bool has_both = i + 1 < sequences.size() && sequences[i + 1] == &choice.pair()->guide();
      if (!has_both || !decodes(state.sequences[i + 1])) continue;
      own.pairs_drafts = true;
    }
    add_candidate(choice, own, i, ends);
  }
}

void Speculation::add_candidate(Choice& choice, const SequenceState& state, std::size_t place,
                                std::span<const std::int32_t> ends) {
  const std::int64_t most = std::min(most_guesses(choice, state), policy_.most());
  if (most == 0) return;
  if (source_->is_free()) jobs_.push_back(job_of(choice, most, ends));
  asked_.push_back(&choice);
  places_.push_back(place);
  candidates_.push_back({.habit = &choice.draft().habit(),
                         .most = most,
                         .left = left_of(choice),
                         .rows = rows_of_guess(choice),
                         .entry_seconds = entry_seconds(choice, most, ends)});
}

void Speculation::draft(std::span<ScheduledSequence* const> sequences, const StepPlan& plan,
                        std::span<const std::int32_t> ends) {
  if (!on() || source_->is_free()) return;  // free guesses were made before the plan
  try {
    jobs_.clear();
    asked_.clear();
    for (const StepWork& work : plan.work) {
      ScheduledSequence& sequence = *sequences[static_cast<std::size_t>(work.sequence)];
      if (work.drafts == 0 || sequence.is_guide()) continue;
      jobs_.push_back(job_of(sequence.choice(), work.drafts, ends));
      asked_.push_back(&sequence.choice());
    }
    if (!jobs_.empty()) propose();
  } catch (const std::bad_alloc&) {
    // There are no guesses then.
  }
}

void Speculation::settle(Choice& choice, std::int64_t drafted, std::int64_t accepted) {
  policy_.measured(choice.draft().habit(), choice.draft().confidence(), drafted, accepted);
  if (drafted > 0) ++rounds_;
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
  AnswerDraft& draft = choice.draft();
  if (draft.guesses().empty() || choice.text().length() != draft.known() + 1) return;
  const bool is_right = choice.text().ids().back() == draft.guesses().front();
  policy_.measured(draft.habit(), draft.confidence(), 1, is_right ? 1 : 0);
}

}  // namespace bl
