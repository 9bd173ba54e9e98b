#include "engine/choice.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

namespace bl {
namespace {

// The prompt without the tokens that healing chooses again.
std::vector<std::int32_t> prompt_of(const OpenRequest& open) {
  const std::vector<std::int32_t>& ids = open.request.prompt;
  const std::size_t tokens = open.healed ? open.healed->kept() : ids.size();
  return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(tokens)};
}

}  // namespace

Choice::Choice(const Args& args)
    : answers_(args.answers),
      open_(answers_->open()),
      index_(args.index),
      text_({.choice = *this,
             .open = open_,
             .pool = args.pool,
             .prompt = prompt_of(open_),
             .every_row = args.index == 0 && open_.request.sampling.prompt_logprobs >= 0}),
      sampler_({.open = open_,
                .sampling = answers_->sampling(),
                .choice = args.index,
                .constraint = answers_->take_constraint(args.index)}),
      writer_({.open = open_,
               .sink = answers_->sink(),
               .choice = args.index,
               .tokenizer = args.tokenizer,
               .begin = sampler_.place(),
               .prompt = text_.ids()}),
      meter_(open_.submitted, std::ssize(open_.request.prompt)) {
  if (open_.negative.empty()) return;
  pair_ = std::make_unique<GuidedPair>(ScheduledSequence::Args{.choice = *this,
                                                               .open = open_,
                                                               .pool = args.pool,
                                                               .prompt = open_.negative,
                                                               .is_guide = true});
}

SequenceState Choice::state_of(const ScheduledSequence& sequence) const {
  SequenceState state = sequence.state();
  state.blocked = is_blocked_;
  state.is_second = sequence.is_guide() || (pair_ && pair_->guide().is_running());
  return state;
}

void Choice::preempt(ScheduledSequence& sequence, PrefixCache& cache) {
  sequence.preempt(cache);
  // A kept row could be paired now and, once it is computed again, with the token after it.
  if (pair_) pair_->forget_rows(sequence);
  if (sequence.is_guide()) return;
  draft_.drop_memory();
  if (!sequence.is_prompt_done()) prompt_logprobs_.clear();
  meter_.preempt();
}

void Choice::look_at_reader() {
  if (answers_->waits_for_prompt(index_)) {
    is_blocked_ = true;
  } else {
    // Answers of best_of have no reader before they are over.
    is_blocked_ = !open_.keeps_best() && writer_.unread() >= open_.request.unread_tokens;
  }
}

void Choice::fill(RowTask& task, std::int64_t place, std::span<const std::int32_t> model_ends) {
  task.history = text_.first(place);
  task.generated = place - prompt_tokens();
  if (place > text_.length()) task.follows = task.history.back();
  sampler_.fill(task, ends(model_ends));
  task.barred = writer_.barred(place);
  task.rewinds = rewinds();
}

std::span<const std::int32_t> Choice::ends(std::span<const std::int32_t> model_ends) const {
  return open_.request.ignore_end_tokens ? std::span<const std::int32_t>() : model_ends;
}

bool Choice::is_end(std::int32_t id, std::span<const std::int32_t> model_ends) const {
  return std::ranges::binary_search(open_.request.sampling.stop_tokens, id) ||
         std::ranges::binary_search(ends(model_ends), id);
}

void Choice::append(std::int32_t id) {
  each_sequence([id](ScheduledSequence& sequence) { sequence.append(id); });
}

void Choice::drop_last(std::int64_t tokens, PrefixCache& cache) {
  draft_.cut(text_.length() - tokens);
  if (pair_) pair_->forget_rows();
  each_sequence(
      [&](ScheduledSequence& sequence) { sequence.cut(cache, sequence.length() - tokens); });
}

void Choice::begin_round(std::int64_t guesses) {
  const bool records = guesses > 0 && open_.request.record_draft_rounds &&
                       meter_.rounds() < open_.longest - prompt_tokens();
  meter_.begin_round(guesses, records);
}

bool Choice::confirm_guess(std::int64_t place, std::int32_t id) {
  if (text_.length() != place || text_.ids().back() != id) return false;
  each_sequence([](ScheduledSequence& sequence) { sequence.count_right_guess(); });
  meter_.accept_guess();
  return true;
}

void Choice::start(EngineClock::time_point now) {
  meter_.admit(now, text_.cached());
  if (!open_.request.tell_start) return;
  const Usage& usage = meter_.usage();
  writer_.tell({.started = Admission{usage.cached_tokens, usage.queue_seconds}});
}

void Choice::finish_prompt(EngineClock::time_point now) {
  text_.finish_prompt();
  meter_.finish_prompt(now);
  writer_.tell({.prompt_logprobs = std::move(prompt_logprobs_), .prompt_done = text_.length()});
  if (pair_) pair_->guide().finish_prompt();
}

void Choice::end(EngineClock::time_point now) {
  each_sequence([](ScheduledSequence& sequence) { sequence.remove_guesses(); });
  meter_.finish(now, generated());
  is_over_ = true;
}

void Choice::tell_end(Ending ending) noexcept {
  bool is_good = ending.reason != FinishReason::kError;
  const Usage& usage = meter_.usage();
  try {
    Event last{.finish = ending.reason, .usage = usage};
    last.draft_rounds = meter_.take_rounds();
    last.code = ending.code;
    last.error = std::move(ending.error);
    writer_.finish(std::move(last), text_.ids(), usage.generated_tokens);
  } catch (const std::exception&) {
    is_good = false;
    writer_.finish_without_memory(usage);
  }
  const auto tokens = static_cast<double>(std::max<std::int64_t>(usage.generated_tokens, 1));
  answers_->set_score(
      index_, is_good ? writer_.score() / tokens : -std::numeric_limits<double>::infinity());
}

}  // namespace bl
