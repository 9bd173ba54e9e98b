#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/answer_draft.h"
#include "engine/answer_sampler.h"
#include "engine/answer_writer.h"
#include "engine/ending.h"
#include "engine/guided_pair.h"
#include "engine/open_request.h"
#include "engine/request_answers.h"
#include "engine/row_sampler.h"
#include "engine/scheduled_sequence.h"
#include "engine/usage_meter.h"

namespace bl {

class Tokenizer;

// One answer being made. It owns the parts that make it and keeps them at the same token: the
// sequence that is computed, the second one of guidance, the sampler that chooses, the writer that
// tells the reader, and what speculation knows.
//
// Invariant: with guidance, both sequences end in the same generated tokens. An answer that is over
// does not change any more.
class Choice {
 public:
  struct Args {
    std::shared_ptr<RequestAnswers> answers;
    std::int32_t index = 0;  // among the request's choices
    PagePool& pool;
    const Tokenizer* tokenizer = nullptr;  // null: the answer has no text
  };
  explicit Choice(const Args& args);
  Choice(const Choice&) = delete;
  Choice& operator=(const Choice&) = delete;

  const OpenRequest& open() const { return open_; }
  RequestAnswers& answers() { return *answers_; }
  std::int32_t index() const { return index_; }

  // --- Sequences ---

  ScheduledSequence& text() { return text_; }
  const ScheduledSequence& text() const { return text_; }
  bool is_guided() const { return pair_ != nullptr; }
  // The rows and the second sequence of a guided answer; null for others.
  GuidedPair* pair() { return pair_.get(); }
  const GuidedPair* pair() const { return pair_.get(); }
  // The text, then the guide where there is one.
  template <class Visit>
  void each_sequence(Visit&& visit) {
    visit(text_);
    if (pair_) visit(pair_->guide());
  }
  // How many tokens of one of its sequences are generated. Tokens that healing put in the place of
  // the prompt's last ones do not count.
  std::int64_t generated_in(const ScheduledSequence& sequence) const {
    return sequence.is_guide() ? sequence.length() - std::ssize(open_.negative) : generated();
  }
  std::int64_t generated() const { return text_.length() - prompt_tokens(); }

  // What the scheduler needs to know about one of its sequences, except what that costs in pages.
  SequenceState state_of(const ScheduledSequence& sequence) const;
  // Sets the sampling fields of an item where the model may choose the tokens behind its rows.
  void let_model_choose(StepItem& item) {
    if (!text_.wants_every_row()) sampler_.let_model_choose(item, prompt_tokens(), generated());
  }
  // The sequence gives up its pages; what belongs to its rows or to an unfinished prompt goes too.
  void preempt(ScheduledSequence& sequence, PrefixCache& cache);

  // --- Readers and siblings ---

  // Decides once per step, so that the step has one view of a reader who goes on meanwhile.
  void look_at_reader();
  // Whether it must not go on in this step: it waits for its sibling's prompt or for its reader.
  bool is_blocked() const { return is_blocked_; }

  // --- Tokens ---

  AnswerSampler& sampler() { return sampler_; }
  const AnswerSampler& sampler() const { return sampler_; }
  AnswerWriter& writer() { return writer_; }
  const AnswerWriter& writer() const { return writer_; }
  UsageMeter& meter() { return meter_; }
  AnswerDraft& draft() { return draft_; }
  const AnswerDraft& draft() const { return draft_; }

  // How often the text went back to an earlier place so far (PickArgs::rewinds).
  std::uint32_t rewinds() const { return static_cast<std::uint32_t>(writer_.all_rewinds()); }
  // Completes the task of a row that decides the token at `place` of the text, or behind guesses.
  // `model_ends`: the model's end tokens, sorted.
  void fill(RowTask& task, std::int64_t place, std::span<const std::int32_t> model_ends);
  // The model's end tokens, as far as they end this answer.
  std::span<const std::int32_t> ends(std::span<const std::int32_t> model_ends) const;
  bool is_end(std::int32_t id, std::span<const std::int32_t> model_ends) const;
  // The text goes on with `id`.
  void append(std::int32_t id);
  // Drops the newest `tokens` tokens of the text.
  void drop_last(std::int64_t tokens, PrefixCache& cache);

  // --- Guesses ---

  // Begins a round in which a step verifies `guesses`.
  void begin_round(std::int64_t guesses);
  // Whether the text now ends, at `place` tokens, with the guess `id`; then that guess was right.
  bool confirm_guess(std::int64_t place, std::int32_t id);

  // --- From admission to the end ---

  // It has a place among those that run, for the first time; tells the reader who wants to know.
  void start(EngineClock::time_point now);
  // A prompt's log-probabilities, which the reader gets with the first token.
  void keep_prompt_row(TokenLogprobs logprobs) { prompt_logprobs_.push_back(std::move(logprobs)); }
  // The prompt has been computed for the first time; tells the reader.
  void finish_prompt(EngineClock::time_point now);
  bool is_over() const { return is_over_; }
  // No token follows. The reader is told later, by tell_end().
  void end(EngineClock::time_point now);
  // Gives the reader the last event, or where there is no memory for it, one that says so.
  void tell_end(Ending ending) noexcept;

 private:
  std::int64_t prompt_tokens() const {
    if (!open_.healed) return std::ssize(open_.request.prompt);
    return static_cast<std::int64_t>(open_.healed->kept()) + sampler_.healing().tokens;
  }

  std::shared_ptr<RequestAnswers> answers_;
  const OpenRequest& open_;
  std::int32_t index_;
  bool is_blocked_ = false;
  bool is_over_ = false;
  ScheduledSequence text_;
  std::unique_ptr<GuidedPair> pair_;  // null without guidance
  AnswerSampler sampler_;
  AnswerWriter writer_;
  UsageMeter meter_;
  AnswerDraft draft_;
  std::vector<TokenLogprobs> prompt_logprobs_;
};

}  // namespace bl
