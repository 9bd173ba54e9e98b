#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "sample/constraint_spec.h"
#include "sample/sampling_params.h"

namespace bl {

// An adapter that Engine::load_adapter() has loaded under this name, and how much of it.
struct AdapterChoice {
  std::string name{};
  double weight = 1;
};

struct TokenProbability {
  std::int32_t id = 0;
  double probability = 0;
  bool operator==(const TokenProbability&) const = default;
};

// A token that has just been chosen for an answer. The spans are valid during the call.
struct SampledToken {
  std::int32_t id = 0;
  double probability = 1;                   // in the distribution that it was drawn from
  std::int64_t position = 0;                // its place in the text, the prompt's tokens included
  std::span<const std::int32_t> history{};  // the text before it
  std::int32_t choice = 0;                  // of the request's answers
  // The model's own row behind the text, before guidance and everything else: one logit for each
  // token that may be returned.
  std::span<const float> logits{};
  // That distribution: all tokens that could have been drawn, by ascending id; their probabilities
  // add up to 1. Where the choice is greedy, the token alone. Empty without hook_candidates.
  std::span<const TokenProbability> candidates{};
};
// Returns the token that comes to stand in the text: the same, or another of the vocabulary.
using TokenHook = std::function<std::int32_t(const SampledToken&)>;

// What a user asks of an engine. Everything is checked when it is submitted.
struct Request {
  std::vector<std::int32_t> prompt{};
  // What guidance (cfg_scale) steers away from; empty: sampling.negative_prompt, encoded.
  std::vector<std::int32_t> negative_prompt{};
  SamplingParams sampling{};       // n of best_of: those of the highest mean log-probability
  ConstraintSpec constraint{};     // the form that the text of every answer has
  bool ignore_end_tokens = false;  // the model's are chosen like others; sampling.stop_tokens end
  bool tell_start = false;         // the first event of each choice has Event::started
  // The answer's text goes on where the prompt's ends (a space between them belongs to it); false
  // for the turn of a conversation, which stands by itself.
  bool continues_prompt = true;
  bool skip_special = true;    // special tokens leave no text
  bool return_logits = false;  // the model's own, behind which each token was chosen

  std::vector<AdapterChoice> adapters{};  // their sum is added; those loaded when it is submitted

  std::int32_t priority = 0;  // each unit is worth ten seconds of waiting
  // So often younger requests that need less of the cache may be admitted before it; then nothing
  // younger is, until it has its place. 0: never; to 1,000,000.
  std::int32_t max_skips = 4;
  double deadline = 0;  // seconds from submission, after which it ends; 0: none
  // A reader who is so many tokens behind pauses the choice until he goes on; fewer where rows of
  // logits would wait too.
  std::int64_t unread_tokens = 1 << 14;
  // Called on the engine's thread for every token of every answer, but not for healed ones: who
  // waits in it holds up everybody, and for the engine waits for ever. What it returns counts as
  // the choice, for constraints, ends and penalties too; what is none of the vocabulary, and any
  // std::exception that it throws, end this request with an error. It sees each token once, but a
  // place again where a banned string was taken back: such a request is never guessed for.
  // Mirostat and adaptive-p learn from what was drawn, not from what is put in its place.
  TokenHook after_sampling{};
  bool hook_candidates = false;  // after_sampling gets SampledToken::candidates, which takes time
  // Where the engine does: the text is the same with and without. Answers with a hook are made
  // without guesses, and so is what token healing puts in the prompt's place.
  bool speculate = true;
  bool record_draft_rounds = false;  // the last event has Event::draft_rounds
  // Keys and values are shared with requests of the same salt only.
  std::string cache_salt{};
  // Keeps the prompt's full pages in the model's own memory under this name until Engine::unpin();
  // a later pin of the same name takes its place. Three quarters of the cache may be pinned in all.
  std::string pin{};
};

enum class FinishReason {
  kEndToken,
  kStopString,
  kConstraint,  // the answer satisfies its constraint, and nothing can follow
  kMaxTokens,
  kContext,
  kLoop,  // loop_detect_window
  kCancelled,
  kDeadline,
  kError,
};
std::string_view name_of(FinishReason reason);

// What one choice has cost. With best_of the first answer has what their common prompt has cost.
struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;     // of the prompt, found in the cache
  std::int64_t cached_pages = 0;      // of them, whole ones; the rest are parts, copied
  std::int64_t prefill_tokens = 0;    // computed before the first token, and again after preemption
  std::int64_t generated_tokens = 0;  // the end token included
  std::int64_t preemptions = 0;
  std::int64_t rewinds = 0;          // of banned strings
  std::int64_t drafted_tokens = 0;   // guessed and verified
  std::int64_t accepted_tokens = 0;  // of them, right: each saved a step
  double queue_seconds = 0;          // submission to admission
  double prefill_seconds = 0;        // admission to the first token
  double decode_seconds = 0;         // the first token to the end
  double prefill_rate() const;
  double decode_rate() const;  // tokens after the first one, per second
};

// A round of speculation: guesses that one step has verified.
struct DraftRound {
  std::int32_t drafted = 0;
  std::int32_t accepted = 0;  // of them, right: the first ones
  bool operator==(const DraftRound&) const = default;
};

struct TokenChance {
  std::int32_t id = 0;
  float logprob = 0;
};
struct TokenLogprobs {
  TokenChance token{};
  std::vector<TokenChance> best{};  // likeliest first, ties by id
};

// Tokens that a reader does not get as a part of the answer's text, and what they say.
struct WithheldText {
  std::string text{};
  std::vector<std::int32_t> ids{};
};

// A token that ended an answer, and its name in the vocabulary ("</s>"; empty without a tokenizer).
struct EndToken {
  std::int32_t id = 0;
  std::string text{};
};

// A choice waits no more: it has a place among those that run.
struct Admission {
  std::int64_t cached_tokens = 0;  // of the prompt, found in the cache by then
  double queue_seconds = 0;        // since submission
};

// What is new about one choice since the reader last asked.
struct Event {
  std::int32_t choice = 0;
  // With tell_start: once, before or beside everything else; not again after preemption, and never
  // where it ends while it waits. With best_of beside the end, as all of it.
  std::optional<Admission> started{};
  std::string text{};  // certain: whole characters, and no beginning of a stop string
  std::vector<std::int32_t> ids{};
  std::vector<TokenLogprobs> logprobs{};         // one an id, where they were asked for
  std::vector<TokenLogprobs> prompt_logprobs{};  // once: of all prompt tokens but the first
  std::vector<std::vector<float>> logits{};      // one row an id, with return_logits
  std::int64_t prompt_done = 0;                  // tokens of the prompt in the cache, so far
  // Tokens that stand for the prompt's last ones (token_healing); not counted as generated, but
  // what they say beyond the prompt is in `text`. They stand behind the prompt's first `kept`
  // tokens, in place of the others.
  std::vector<std::int32_t> healed{};
  std::vector<TokenLogprobs> healed_logprobs{};  // one each, where they were asked for
  std::int64_t kept = 0;                         // with `healed`
  // Banned strings that were taken back, oldest first: all tokens from the one that began it.
  std::vector<WithheldText> suppressed{};

  // Set in the last event of a choice.
  std::optional<FinishReason> finish{};
  std::string stop_string{};            // with kStopString: which
  std::optional<EndToken> end_token{};  // with kEndToken: which
  // What was generated and is not in the answer's text. With kStopString, the stop string and what
  // its last token says behind it; with kEndToken, that token. Its ids are the answer's last ones,
  // which `ids` and `logprobs` have too: the first of them may say the end of the text as well.
  WithheldText held{};
  Usage usage{};
  // With record_draft_rounds: all rounds, in order; they add up to what `usage` says. Not more than
  // the answer may have tokens: only one that takes banned strings back may come to more rounds,
  // and the later ones are left out.
  std::vector<DraftRound> draft_rounds{};
  ErrorCode code = ErrorCode::kInvalidArgument;  // with kError
  std::string error{};                           // with kError: one line
};

}  // namespace bl
