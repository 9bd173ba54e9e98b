#include "engine/accept_token.h"

#include <fmt/format.h>

#include <utility>

#include "engine/loop_detector.h"

namespace bl {
namespace {

// After so many continuations of one place were taken back, the banned strings count as leaving
// nothing to say.
constexpr std::int64_t kMostRewinds = 256;

// The answer goes back to the token with which a banned string began, and will go on in another
// way. `ended`: the newest token would have ended the answer, and is not part of the string.
std::optional<Ending> rewind(Choice& choice, PrefixCache& cache, bool ended) {
  AnswerWriter& writer = choice.writer();
  AnswerSampler& sampler = choice.sampler();
  const std::size_t said = writer.banned_tokens();
  const std::size_t tokens = said + (ended ? 1 : 0);
  const auto count = static_cast<std::int64_t>(tokens);
  const std::span<const std::int32_t> ids = choice.text().ids().last(tokens);
  WithheldText taken{.ids = {ids.begin(), ids.end()}};
  sampler.go_back(writer.take_back(tokens, choice.text().length() - count));
  choice.drop_last(count, cache);
  writer.tell_taken_back(std::move(taken), said, choice.text().ids());
  sampler.roll_constraint_back(choice.generated());
  choice.meter().rewind();
  if (writer.rewinds() < kMostRewinds) return std::nullopt;
  return Ending{FinishReason::kError, ErrorCode::kInvalidArgument,
                fmt::format("banned_strings: {} continuations were taken back without getting "
                            "beyond token {} of the answer; the strings leave too little to say",
                            kMostRewinds, choice.generated())};
}

bool repeats_itself(const Choice& choice) {
  const SamplingParams& params = choice.sampler().params();
  const std::int64_t window = params.loop_detect_window;
  if (window == 0 || choice.generated() < window) return false;
  return is_loop(choice.text().ids().last(static_cast<std::size_t>(window)),
                 params.loop_detect_repeats);
}

std::optional<Ending> ending_of(const Choice& choice, const AcceptArgs& args) {
  const OpenRequest& open = choice.open();
  const std::int64_t most = open.request.sampling.max_tokens;
  if (args.is_end) return Ending{FinishReason::kEndToken};
  if (choice.writer().is_stopped()) return Ending{FinishReason::kStopString};
  if (args.satisfied) return Ending{FinishReason::kConstraint};
  if (repeats_itself(choice)) return Ending{FinishReason::kLoop};
  if (choice.text().length() >= open.longest || (most > 0 && choice.generated() >= most)) {
    return Ending{open.by_limit ? FinishReason::kMaxTokens : FinishReason::kContext};
  }
  return std::nullopt;
}

// The token with what its reader wants to know about it.
AnswerPiece piece_of(Choice& choice, const AcceptArgs& args) {
  AnswerSampler& sampler = choice.sampler();
  AnswerPiece piece{.id = args.id, .healed = sampler.healing().active()};
  if (piece.healed) sampler.accept_healed(args.id);
  if (!args.is_end) piece.text = choice.writer().decode(args.id);
  if (args.logprobs != nullptr) piece.logprobs = std::move(*args.logprobs);
  if (choice.open().request.return_logits && !piece.healed) {
    piece.logits.assign(args.logits.begin(), args.logits.end());
  }
  return piece;
}

}  // namespace

std::optional<Ending> accept_token(Choice& choice, PrefixCache& cache, AcceptArgs args) {
  choice.append(args.id);
  AnswerWriter& writer = choice.writer();
  AnswerPiece piece = piece_of(choice, args);
  if (!writer.holds()) {
    writer.give(std::move(piece));
    return ending_of(choice, args);
  }
  writer.hold(std::move(piece), choice.sampler().place());
  if (!args.is_end && writer.is_banned()) return rewind(choice, cache, false);
  const std::optional<Ending> ending = ending_of(choice, args);
  if (ending) writer.close();
  if (writer.is_banned()) return rewind(choice, cache, args.is_end);
  writer.release(choice.text().length());
  return ending;
}

}  // namespace bl
