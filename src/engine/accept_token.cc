#include "engine/accept_token.h"

#include <algorithm>
#include <utility>

#include "engine/loop_detector.h"
#include "text/tokenizer.h"

namespace bl {
namespace {

// So many continuations of one place are tried before the banned strings count as leaving nothing
// to say.
constexpr std::int64_t kMostRewinds = 256;

void give(Choice& choice, AnswerPiece piece) {
  EventStream& sink = choice.open->sink();
  if (piece.logprobs && !piece.healed) {
    choice.score += static_cast<double>(piece.logprobs->token.logprob);
  }
  if (piece.healed) {
    Event event{.choice = choice.index, .text = std::move(piece.text), .healed = {piece.id}};
    event.kept = static_cast<std::int64_t>(choice.healing.prompt->kept());
    if (piece.logprobs && choice.sampler.params().logprobs) {
      event.healed_logprobs.push_back(std::move(*piece.logprobs));
    }
    sink.push(std::move(event));
  } else if ((piece.logprobs && choice.sampler.params().logprobs) || !piece.logits.empty()) {
    Event event{.choice = choice.index, .text = std::move(piece.text), .ids = {piece.id}};
    if (choice.sampler.params().logprobs) event.logprobs.push_back(std::move(*piece.logprobs));
    if (!piece.logits.empty()) event.logits.push_back(std::move(piece.logits));
    sink.push(std::move(event));
  } else {
    sink.push_token(choice.index, piece.id, piece.text);
  }
}

// The answer goes back to the token with which a banned string began, and on in another way.
// `ended`: behind the text stands a token that would have ended it.
std::optional<Ending> rewind(Choice& choice, PrefixCache& cache, bool ended) {
  const std::size_t said = choice.text->open_tokens();
  const std::size_t tokens = said + (ended ? 1 : 0);
  const auto count = static_cast<std::int64_t>(tokens);
  const std::span<const std::int32_t> ids =
      std::span(std::as_const(choice.sequence.ids)).last(tokens);
  WithheldText suppressed{.ids = {ids.begin(), ids.end()}};
  const HeldAnswer::Place place = choice.held->take_back(tokens, choice.length() - count);
  choice.sampler.restore(place.sampler);
  choice.healing = place.healing;
  for (Choice* part : {&choice, choice.guide}) {
    if (part == nullptr) continue;
    part->rows.clear();
    part->truncate(cache, part->length() - count);
  }
  suppressed.text = choice.text->take_back(said, choice.text_before());
  choice.open->sink().push({.choice = choice.index, .suppressed = {std::move(suppressed)}});
  // It may be ahead by guesses that were right and are not taken.
  if (choice.constraint) {
    choice.constraint->rollback(choice.constraint->accepted() - choice.generated());
  }
  ++choice.usage.rewinds;
  if (choice.held->rewinds() < kMostRewinds) return std::nullopt;
  return Ending{FinishReason::kError, ErrorCode::kInvalidArgument,
                fmt::format("banned_strings: {} continuations were taken back without getting "
                            "beyond token {} of the answer; the strings leave too little to say",
                            kMostRewinds, choice.generated())};
}

bool repeats_itself(const Choice& choice) {
  const SamplingParams& params = choice.sampler.params();
  const std::int64_t window = params.loop_detect_window;
  if (window == 0 || choice.generated() < window) return false;
  return is_loop(std::span(choice.sequence.ids).last(static_cast<std::size_t>(window)),
                 params.loop_detect_repeats);
}

std::optional<Ending> ending_of(const Choice& choice, const AcceptArgs& args) {
  const OpenRequest& open = *choice.open;
  const std::int64_t most = open.request.sampling.max_tokens;
  if (args.is_end) return Ending{FinishReason::kEndToken};
  if (choice.text && choice.text->stopped()) return Ending{FinishReason::kStopString};
  if (args.satisfied) return Ending{FinishReason::kConstraint};
  if (repeats_itself(choice)) return Ending{FinishReason::kLoop};
  if (choice.length() >= open.longest || (most > 0 && choice.generated() >= most)) {
    return Ending{open.by_limit ? FinishReason::kMaxTokens : FinishReason::kContext};
  }
  return std::nullopt;
}

}  // namespace

void start_text(Choice& choice, const Tokenizer& tokenizer) {
  const OpenRequest& open = *choice.open;
  choice.text = std::make_unique<AnswerText>(tokenizer, open.request.skip_special, open.rules,
                                             choice.text_before());
  if (open.healed) choice.text->leave_out(open.healed->text_bytes());
  if (!open.rules.banned) return;
  choice.held =
      std::make_unique<HeldAnswer>(HeldAnswer::Place{choice.sampler.state(), choice.healing});
}

void tell_rest(Choice& choice, const Tokenizer* tokenizer, Event& last) {
  const bool is_open = choice.text && !choice.text->stopped();
  if (choice.text) last.text = choice.text->finish();
  // Bytes may turn out to be text, and a stop string, when no token comes any more.
  if (is_open && choice.text->stopped() && last.finish < FinishReason::kCancelled) {
    last.finish = FinishReason::kStopString;
  }
  if (choice.text) last.stop_string = choice.text->stop_string();
  if (last.finish == FinishReason::kEndToken) {
    const std::int32_t id = choice.sequence.ids.back();
    last.end_token = EndToken{id};
    if (tokenizer != nullptr) last.end_token->text = tokenizer->id_to_token(id);
    last.held = {last.end_token->text, {id}};
    return;
  }
  if (!choice.text || !choice.text->stopped()) return;
  last.held.text = choice.text->withheld();
  const auto most = static_cast<std::size_t>(choice.generated());
  const std::size_t tokens = std::min(most, choice.text->withheld_tokens(choice.text_before()));
  const std::span<const std::int32_t> ids =
      std::span(std::as_const(choice.sequence.ids)).last(tokens);
  last.held.ids.assign(ids.begin(), ids.end());
}

void give_held(Choice& choice) {
  if (!choice.held) return;
  choice.held->release(0, choice.length(),
                       [&](AnswerPiece piece) { give(choice, std::move(piece)); });
}

std::optional<Ending> accept_token(Choice& choice, PrefixCache& cache, AcceptArgs args) {
  choice.sequence.ids.push_back(args.id);
  if (choice.guide != nullptr) choice.guide->sequence.ids.push_back(args.id);
  AnswerPiece piece{.id = args.id, .healed = choice.healing.active()};
  if (piece.healed) choice.healing.accept(args.id);
  if (choice.text && !args.is_end) piece.text = choice.text->push(args.id);
  if (args.logprobs != nullptr) piece.logprobs = std::move(*args.logprobs);
  if (choice.open->request.return_logits && !piece.healed) {
    piece.logits.assign(args.logits.begin(), args.logits.end());
  }
  if (!choice.held) {
    give(choice, std::move(piece));
    return ending_of(choice, args);
  }
  choice.held->add(std::move(piece), {choice.sampler.state(), choice.healing});
  if (!args.is_end && choice.text->is_banned()) return rewind(choice, cache, false);
  const std::optional<Ending> ending = ending_of(choice, args);
  if (ending) choice.text->close();
  if (choice.text->is_banned()) return rewind(choice, cache, args.is_end);
  choice.held->release(choice.text->open_tokens(), choice.length(),
                       [&](AnswerPiece ready) { give(choice, std::move(ready)); });
  return ending;
}

}  // namespace bl
