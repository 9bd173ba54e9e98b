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
#include "text/text_stream.h"

namespace bl {

// An adapter that Engine::load_adapter() has loaded under this name, and its weight.
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
  std::int64_t position = 0;                // its index in the text, prompt included
  std::span<const std::int32_t> history{};  // the text before it, prompt included
  std::int32_t choice = 0;                  // the answer's index among the request's answers
  // The model's own logits behind the text, before guidance and sampling: one for each token that
  // may be returned.
  std::span<const float> logits{};
  // That distribution: all tokens that could have been drawn, by ascending id, with probabilities
  // that add up to 1; only the token itself where the choice is greedy. Empty without
  // hook_candidates.
  std::span<const TokenProbability> candidates{};
};
// Returns the token that becomes part of the text: the same, or another one of the vocabulary.
using TokenHook = std::function<std::int32_t(const SampledToken&)>;

// What a user asks of an engine. Everything in it is checked when it is submitted.
struct Request {
  std::vector<std::int32_t> prompt{};
  // The prompt that guidance (cfg_scale) steers away from; empty: sampling.negative_prompt,
  // encoded.
  std::vector<std::int32_t> negative_prompt{};
  SamplingParams sampling{};       // of best_of answers, returns the n of best mean log-probability
  ConstraintSpec constraint{};     // the form of every answer's text
  bool prompt_only = false;        // computes the prompt; answers end (kMaxTokens) without a token
  bool ignore_end_tokens = false;  // the model's end tokens do not end; sampling.stop_tokens do
  bool tell_start = false;         // the first event of each choice has Event::started
  // True: the answer's text continues the prompt's, so that a space between them belongs to it.
  // False, for the turn of a conversation: it stands by itself.
  bool continues_prompt = true;
  bool skip_special = true;  // special tokens give no text
  // With skip_special: ids of special tokens that give text all the same, in rising order, such as
  // those that mark tool calls.
  std::vector<std::int32_t> shown_special{};
  SpecialText special_text() const { return {skip_special, shown_special}; }
  bool return_logits = false;  // returns the model's own logits that each token was chosen from

  std::vector<AdapterChoice> adapters{};  // added up; as loaded at the time of submission

  std::int32_t priority = 0;  // each unit is worth ten seconds of waiting
  // How often younger requests that need fewer pages may be admitted before it. After that, no
  // younger one is, until it has its place. 0 … 1,000,000.
  std::int32_t max_skips = 4;
  double deadline = 0;  // ends this many seconds after submission; 0: no deadline
  // The choice pauses while this many of its tokens are unread. Fewer where rows of logits would
  // wait too (EngineOptions::unread_logits).
  std::int64_t unread_tokens = 1 << 14;
  // Called on the engine's thread for every token of every answer, except healed ones. While it
  // runs, all requests wait; it must never wait for the engine. The token that it returns counts as
  // chosen, for constraints, end tokens and penalties too; but Mirostat and adaptive-p learn from
  // the token that was drawn. An id outside the vocabulary, or any std::exception that it throws,
  // ends this request with an error. It is called once per token, so again for a position where a
  // banned string was taken back. Requests with a hook get no guesses.
  TokenHook after_sampling{};
  bool hook_candidates = false;  // fills SampledToken::candidates, which takes time
  // Allows guesses where the engine makes some; the text is the same with and without. Answers with
  // a hook, and tokens of token healing, are made without.
  bool speculate = true;
  bool record_draft_rounds = false;  // the last event has Event::draft_rounds
  // The KV cache is shared only between requests of equal salts.
  std::string cache_salt{};
  // Pins the prompt's full pages under this name: they stay in the model's own memory until
  // Engine::unpin(). A later pin of the same name replaces it. At most three quarters of the cache
  // may be pinned.
  std::string pin{};
};

enum class FinishReason {
  kEndToken,
  kStopString,
  kConstraint,  // the answer satisfies its constraint, and no token can follow
  kMaxTokens,
  kContext,
  kLoop,  // it repeats itself (SamplingParams::loop_detect_window)
  kCancelled,
  kDeadline,
  kError,
};
std::string_view name_of(FinishReason reason);

// What one choice has cost. With best_of, the first answer has the cost of the common prompt.
struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;     // tokens of the prompt that were found in the cache
  std::int64_t cached_pages = 0;      // whole pages among them; the rest was copied from a page
  std::int64_t prefill_tokens = 0;    // computed before the first token, or again after preemption
  std::int64_t generated_tokens = 0;  // including the end token
  std::int64_t preemptions = 0;
  std::int64_t rewinds = 0;          // banned strings that were taken back
  std::int64_t drafted_tokens = 0;   // guesses that were verified
  std::int64_t accepted_tokens = 0;  // right guesses; each saved a step
  double queue_seconds = 0;          // from submission to admission
  double prefill_seconds = 0;        // from admission to the first token
  double decode_seconds = 0;         // from the first token to the end
  double prefill_rate() const;       // tokens per second
  double decode_rate() const;        // tokens after the first one per second
};

// A round of speculation: the guesses that one step has verified.
struct DraftRound {
  std::int32_t drafted = 0;
  std::int32_t accepted = 0;  // right guesses, which are the first ones
  bool operator==(const DraftRound&) const = default;
};

struct TokenChance {
  std::int32_t id = 0;
  float logprob = 0;
};
struct TokenLogprobs {
  TokenChance token{};
  std::vector<TokenChance> best{};  // the likeliest first; of equal ones, the smaller id
};

// Tokens that are not part of the answer's text, and their own text.
struct WithheldText {
  std::string text{};
  std::vector<std::int32_t> ids{};
};

// A token that ended an answer, and its name in the vocabulary ("</s>"; empty without a tokenizer).
struct EndToken {
  std::int32_t id = 0;
  std::string text{};
};

// A choice was admitted: it runs now.
struct Admission {
  std::int64_t cached_tokens = 0;  // tokens of the prompt found in the cache by then
  double queue_seconds = 0;        // from submission to admission
};

// The news of one choice since its last event.
struct Event {
  std::int32_t choice = 0;
  // With tell_start, once: in the first event of a choice that was admitted, or with best_of in its
  // last one. Not again after a preemption.
  std::optional<Admission> started{};
  std::string text{};  // whole characters that no stop string can take back
  std::vector<std::int32_t> ids{};
  std::vector<TokenLogprobs> logprobs{};         // one per id, where they were asked for
  std::vector<TokenLogprobs> prompt_logprobs{};  // once: of all prompt tokens except the first
  std::vector<std::vector<float>> logits{};      // with return_logits, one row [vocab] per id
  std::int64_t prompt_done = 0;  // tokens of the prompt that are in the cache so far
  // With token_healing: tokens that were chosen in place of the prompt's last ones, and follow its
  // first `kept` tokens. They do not count as generated, but what they say beyond the prompt is in
  // `text`.
  std::vector<std::int32_t> healed{};
  std::vector<TokenLogprobs> healed_logprobs{};  // one per healed id, where they were asked for
  std::int64_t kept = 0;                         // meaningful with `healed`
  // Banned strings that were taken back, oldest first: all tokens from the one that began each.
  std::vector<WithheldText> suppressed{};

  // Set in the last event of a choice.
  std::optional<FinishReason> finish{};
  std::string stop_string{};            // with kStopString: which
  std::optional<EndToken> end_token{};  // with kEndToken: which
  // What was generated and is not in the answer's text: with kStopString, the stop string and the
  // text of its last token behind it; with kEndToken, that token. Its ids are the answer's last
  // ones and in `ids` and `logprobs` too; the first of them may have a part in the answer's text as
  // well.
  WithheldText held{};
  Usage usage{};
  // With record_draft_rounds: all rounds in order, which add up to what `usage` says. There are no
  // more of them than the answer may have tokens; an answer that takes banned strings back may have
  // more rounds, of which the later ones are left out.
  std::vector<DraftRound> draft_rounds{};
  ErrorCode code = ErrorCode::kInvalidArgument;  // with kError
  std::string error{};                           // with kError: one line
};

}  // namespace bl
