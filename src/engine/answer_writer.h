#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/answer_text.h"
#include "engine/ending.h"
#include "engine/event_stream.h"
#include "engine/held_answer.h"
#include "engine/open_request.h"
#include "engine/request.h"

namespace bl {

class Tokenizer;

// What the reader of one answer gets: turns its tokens into text and events, and holds back tokens
// that a banned string may still take back.
//
// Invariant: nothing that has been written to the sink is taken back.
class AnswerWriter {
 public:
  struct Args {
    const OpenRequest& open;
    EventStream& sink;
    std::int32_t choice = 0;
    const Tokenizer* tokenizer = nullptr;  // null: the answer has no text
    // Where the answer begins, and the tokens before it.
    HeldAnswer::Place begin;
    std::span<const std::int32_t> prompt;
  };
  explicit AnswerWriter(const Args& args);

  // --- A token that has just been chosen ---

  // The text that is certain with it.
  std::string decode(std::int32_t id) { return text_ ? text_->push(id) : std::string(); }
  // Whether tokens are held back; then a token is passed to hold(), else to give().
  bool holds() const { return held_ != nullptr; }
  void give(AnswerPiece piece);
  // `after`: where the answer stands behind the token.
  void hold(AnswerPiece piece, const HeldAnswer::Place& after) {
    held_->add(std::move(piece), after);
  }
  // Gives what no banned string can take back any more, of a text of `length` tokens.
  void release(std::int64_t length);
  // Whether the text ends with a banned string, which has to be taken back.
  bool is_banned() const { return text_ && text_->is_banned(); }
  // Whether a stop string is complete.
  bool is_stopped() const { return text_ && text_->stopped(); }
  // No token follows; this may complete a banned string.
  void close() { text_->close(); }
  // Tokens that must not follow a text of `length` tokens.
  std::span<const std::int32_t> barred(std::int64_t length) const {
    return held_ ? held_->barred(length) : std::span<const std::int32_t>();
  }

  // --- Taking a banned string back ---

  // The newest tokens of the text that belong to it.
  std::size_t banned_tokens() const { return text_->open_tokens(); }
  // Drops the newest `tokens` tokens, of which `length` tokens of the text stay. Returns where the
  // answer stands then.
  HeldAnswer::Place take_back(std::size_t tokens, std::int64_t length) {
    return held_->take_back(tokens, length);
  }
  // Tells the reader what was taken back. `said`: how many of its tokens were decoded; `ids`: the
  // whole text that stays.
  void tell_taken_back(WithheldText taken, std::size_t said, std::span<const std::int32_t> ids);
  // Times that something was taken back since a token was last given.
  std::int64_t rewinds() const { return held_ ? held_->rewinds() : 0; }
  // Times that something was taken back since the answer began.
  std::int64_t all_rewinds() const { return held_ ? held_->all_rewinds() : 0; }

  // --- The end ---

  // Σ log-probability of the tokens given, where those are computed.
  double score() const { return score_; }
  // Gives what was held back, and the last event: `last` completed by the rest of the text, by
  // what ended it and by what is withheld. `ids`: the whole text, of which `generated` tokens are
  // the answer's.
  void finish(Event last, std::span<const std::int32_t> ids, std::int64_t generated);
  // The last event where there is no memory for a whole one.
  void finish_without_memory(const Usage& usage) noexcept {
    sink_.end_without_memory(choice_, usage);
  }

  // An event of this answer that has nothing to do with its text.
  void tell(Event event) {
    event.choice = choice_;
    sink_.push(std::move(event));
  }
  std::int64_t unread() const { return sink_.unread(choice_); }

 private:
  // The tokens that the answer's text goes on from, at the beginning of `ids` and all behind it.
  std::span<const std::int32_t> context(std::span<const std::int32_t> ids) const;
  void tell_end_token(Event& last, std::int32_t id) const;
  void tell_withheld(Event& last, std::span<const std::int32_t> ids, std::int64_t generated) const;

  const OpenRequest& open_;
  EventStream& sink_;
  std::int32_t choice_;
  const Tokenizer* tokenizer_;
  std::unique_ptr<AnswerText> text_;  // null without a tokenizer
  std::unique_ptr<HeldAnswer> held_;  // with banned strings
  double score_ = 0;
};

}  // namespace bl
