#include "engine/answer_writer.h"

#include <algorithm>
#include <utility>

#include "text/tokenizer.h"

namespace bl {

AnswerWriter::AnswerWriter(const Args& args)
    : open_(args.open), sink_(args.sink), choice_(args.choice), tokenizer_(args.tokenizer) {
  if (tokenizer_ == nullptr) return;
  text_ = std::make_unique<AnswerText>(*tokenizer_, open_.request.special_text(), open_.rules,
                                       context(args.prompt));
  if (open_.healed) text_->leave_out(open_.healed->text_bytes());
  if (open_.rules.banned) held_ = std::make_unique<HeldAnswer>(args.begin);
}

std::span<const std::int32_t> AnswerWriter::context(std::span<const std::int32_t> ids) const {
  if (open_.request.continues_prompt) return ids;
  return ids.subspan(open_.healed ? open_.healed->kept() : open_.request.prompt.size());
}

void AnswerWriter::give(AnswerPiece piece) {
  const bool reports = open_.request.sampling.logprobs && piece.logprobs;
  if (piece.logprobs && !piece.healed) {
    score_ += static_cast<double>(piece.logprobs->token.logprob);
  }
  if (piece.healed) {
    Event event{.text = std::move(piece.text), .healed = {piece.id}};
    event.kept = static_cast<std::int64_t>(open_.healed->kept());
    if (reports) event.healed_logprobs.push_back(std::move(*piece.logprobs));
    tell(std::move(event));
  } else if (reports || !piece.logits.empty()) {
    Event event{.text = std::move(piece.text), .ids = {piece.id}};
    if (reports) event.logprobs.push_back(std::move(*piece.logprobs));
    if (!piece.logits.empty()) event.logits.push_back(std::move(piece.logits));
    tell(std::move(event));
  } else {
    sink_.push_token(choice_, piece.id, piece.text);
  }
}

void AnswerWriter::release(std::int64_t length) {
  held_->release(text_->open_tokens(), length, [&](AnswerPiece ready) { give(std::move(ready)); });
}

void AnswerWriter::tell_taken_back(WithheldText taken, std::size_t said,
                                   std::span<const std::int32_t> ids) {
  taken.text = text_->take_back(said, context(ids));
  tell({.suppressed = {std::move(taken)}});
}

void AnswerWriter::finish(Event last, std::span<const std::int32_t> ids, std::int64_t generated) {
  if (held_) {
    held_->release(0, static_cast<std::int64_t>(ids.size()),
                   [&](AnswerPiece piece) { give(std::move(piece)); });
  }
  const bool was_stopped = is_stopped();
  if (text_) last.text = text_->finish();
  // Bytes without a following token may turn out to be text, and complete a stop string.
  if (!was_stopped && is_stopped() && last.finish < FinishReason::kCancelled) {
    last.finish = FinishReason::kStopString;
  }
  if (text_) last.stop_string = text_->stop_string();
  if (last.finish == FinishReason::kEndToken) {
    tell_end_token(last, ids.back());
  } else if (is_stopped()) {
    tell_withheld(last, ids, generated);
  }
  tell(std::move(last));
}

void AnswerWriter::tell_end_token(Event& last, std::int32_t id) const {
  last.end_token = EndToken{id};
  if (tokenizer_ != nullptr) last.end_token->text = tokenizer_->id_to_token(id);
  last.held = {last.end_token->text, {id}};
}

void AnswerWriter::tell_withheld(Event& last, std::span<const std::int32_t> ids,
                                 std::int64_t generated) const {
  last.held.text = text_->withheld();
  const std::size_t tokens =
      std::min(static_cast<std::size_t>(generated), text_->withheld_tokens(context(ids)));
  const std::span<const std::int32_t> held = ids.last(tokens);
  last.held.ids.assign(held.begin(), held.end());
}

}  // namespace bl
