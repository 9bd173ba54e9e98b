#pragma once
// What a request may ask about the choice of its tokens, and what the engine does around it.
//
// Goals: one struct for the command line, JSON requests, presets and C++ programs; every value is
// checked once, at the edge, so that nothing behind it checks again. Non-goal: constraints of
// grammars (they come to the chain as a mask, PickArgs::mask).
//
// The order of the stages is in sample/README.md; formulas are in the headers of sample/stages.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/options.h"

namespace bl {

struct TokenBias {
  std::int32_t id = 0;
  double bias = 0;  // added to the logit; −∞ bars the token
  bool operator==(const TokenBias&) const = default;
};

struct SamplingParams {
  // --- penalties of tokens that occurred, the prompt's included ---
  double repetition_penalty = 1.0;    // 1: off; logit / r if positive, else · r; once a token
  double presence_penalty = 0.0;      // 0: off; subtracted once a token
  double frequency_penalty = 0.0;     // 0: off; subtracted for every occurrence
  std::int64_t penalty_range = -1;    // the newest so many tokens count in full; -1: all
  std::int64_t repetition_decay = 0;  // over so many tokens before those, strength falls to none

  // --- DRY: against going on as after an earlier occurrence of the newest tokens ---
  double dry_multiplier = 0.0;          // 0: off
  double dry_base = 1.75;               // penalty = multiplier · base^(length − allowed_length)
  std::int64_t dry_allowed_length = 2;  // shorter repeats cost nothing
  std::int64_t dry_range = 0;           // looks at the newest so many tokens; 0 or -1: all
  // No repeat reaches over a token of these: texts, which the edge turns into the ids below
  // (tokens_containing(), token_sets.h).
  std::vector<std::string> dry_sequence_breakers{"\n", ":", "\"", "*"};
  std::vector<std::int32_t> dry_breaker_tokens;

  // --- what may be chosen at all ---
  std::vector<TokenBias> logit_bias;
  std::vector<std::int32_t> banned_tokens;
  std::vector<std::int32_t> allowed_tokens;  // empty: all
  // The same by what tokens say (" yes"), each exactly one token's text: the edge turns them into
  // ids of the lists above.
  std::vector<std::string> banned_pieces;
  std::vector<std::string> allowed_pieces;

  // --- shape of the distribution ---
  double temperature = 0.8;       // 0: greedy
  bool temperature_last = false;  // after the truncations instead of before them
  // Dynamic temperature, in place of `temperature` and always last: min + (max − min) ·
  // (entropy / its largest value)^exponent. Off unless max_temp > min_temp.
  double min_temp = 0.0;
  double max_temp = 0.0;
  double temp_exponent = 1.0;
  double smoothing_factor = 0.0;  // 0: off; probability ∝ exp(−factor·x²), x below the top
  double smoothing_curve = 1.0;   // 1: the parabola alone; to 3: more and more cubic

  // --- truncations, in this order ---
  double top_n_sigma = 0.0;        // 0: off; keeps logits within n standard deviations of the top
  std::int64_t top_k = 50;         // 0: off
  double top_p = 0.95;             // 1: off; the token that crosses is kept; 0: greedy
  double top_a = 0.0;              // 0: off; keeps p ≥ a · (the best p)²
  double min_p = 0.0;              // 0: off; keeps p ≥ min_p · the best p
  double tfs = 1.0;                // tail-free sampling; 0 or 1: off
  double typical = 1.0;            // locally typical sampling; 0 or 1: off
  std::int64_t mirostat_mode = 0;  // 0: off; 2: mirostat version 2
  double mirostat_tau = 1.5;       // wanted surprise in bits
  double mirostat_eta = 0.1;       // learning rate

  // --- after the truncations ---
  double xtc_probability = 0.0;  // 0: off
  double xtc_threshold = 0.1;    // tokens at least so likely, but the least of them, may go
  bool xtc_random = false;       // a coin a token instead of the expectation of that coin
  std::vector<std::int32_t> xtc_ignore_tokens;  // neither count nor go (xtc_protected_tokens())
  double skew = 0.0;             // 0: off; > 0 favours unlikely tokens, < 0 likely ones
  double adaptive_target = 1.0;  // 1: off; favours tokens of about this probability
  double adaptive_decay = 0.9;   // how long earlier choices count

  // The stages from smoothing to adaptive-p in this order instead (SamplerChain::stage_names());
  // all that are on must be named. Empty: README.md's.
  std::vector<std::string> sampler_order;

  std::uint64_t seed = 0;

  // --- what the engine does; the chain only bars end tokens ---
  std::int64_t max_tokens = 0;  // 0: as many as the context holds
  std::int64_t min_tokens = 0;  // end tokens and stop_tokens are barred until there are so many
  bool ban_end_tokens = false;  // the model's end tokens are never chosen
  std::vector<std::int32_t> stop_tokens;    // end the answer beside the model's end tokens
  std::vector<std::string> stop_strings;    // end it before the earliest of these texts
  std::vector<std::string> banned_strings;  // rewound, without regard to case, and tried again
  bool token_healing = false;   // the prompt's last token is chosen again, with its text as prefix
  double cfg_scale = 1.0;       // 1: off; s·ln p(prompt) + (1 − s)·ln p(negative prompt)
  std::string negative_prompt;  // what guidance steers away from
  std::int64_t n = 1;           // answers
  std::int64_t best_of = 0;     // answers to choose the n best of; 0: n
  bool logprobs = false;        // log-probabilities of the chosen tokens
  std::int64_t top_logprobs = 0;        // … and of so many likeliest ones
  bool logprobs_after = false;          // of the distribution behind the chain, not the model's own
  std::int64_t prompt_logprobs = -1;    // the same for the prompt's tokens; -1: none
  std::int64_t loop_detect_window = 0;  // 0: off; ends when so many tokens are one repeated unit
  std::int64_t loop_detect_repeats = 2;  // … repeated at least so often

  bool operator==(const SamplingParams&) const = default;

  // Every stage off, temperature 1: what OpenAI's API means by leaving a parameter out.
  static SamplingParams plain();

  // Below 1/1000 even the smallest difference that float logits can show decides. In an order of
  // the user's own something may come before top-k and top-p that changes who is first.
  bool greedy() const {
    return temperature < 1e-3 || (sampler_order.empty() && (top_k == 1 || top_p == 0));
  }
  bool dynamic_temperature() const { return max_temp > min_temp; }
  // The answers that are computed.
  std::int64_t answers() const { return best_of > n ? best_of : n; }

  // The numbers that flags set; engine fields of the command line have flags of their own.
  template <class V>
  void visit(V&& v) {
    v(temperature, {"--temperature", "X", "flatness of the distribution; 0 is greedy"});
    v(top_k, {"--top-k", "N", "keep the N likeliest tokens; 0 keeps all"});
    v(top_p, {"--top-p", "X", "keep the likeliest tokens that hold this share; 1 keeps all"});
    v(min_p, {"--min-p", "X", "keep tokens at least X times as likely as the likeliest"});
    v(repetition_penalty,
      {"--repetition-penalty", "X", "divide the score of tokens that occurred; 1 is off"});
    v(presence_penalty,
      {"--presence-penalty", "X", "taken from the score of tokens that occurred"});
    v(frequency_penalty,
      {"--frequency-penalty", "X", "taken from a token's score each time that it occurred"});
    v(penalty_range, {"--penalty-range", "N", "tokens that penalties look back on; -1 is all"});
    v(repetition_decay,
      {"--repetition-decay", "N", "tokens before those that count less and less"});
    v(dry_multiplier, {"--dry-multiplier", "X", "penalty of going on with a repeat; 0 is off"});
    v(dry_base, {"--dry-base", "X", "growth of that penalty with each repeated token"});
    v(dry_allowed_length, {"--dry-allowed-length", "N", "length of repeats that cost nothing yet"});
    v(dry_range, {"--dry-range", "N", "tokens in which repeats are looked for; 0 is all"});
    v(temperature_last, {"--temperature-last", "on|off", "temperature after the truncations"});
    v(min_temp, {"--min-temp", "X", "dynamic temperature where the model is certain"});
    v(max_temp, {"--max-temp", "X", "… and where it is not; off unless above --min-temp"});
    v(temp_exponent, {"--temp-exponent", "X", "bend of the way between the two"});
    v(smoothing_factor, {"--smoothing-factor", "X", "probability falls with the square; 0 is off"});
    v(smoothing_curve, {"--smoothing-curve", "X", "1 (square) to 3 (cube)"});
    v(top_n_sigma, {"--top-n-sigma", "X", "keep scores within X standard deviations of the top"});
    v(top_a, {"--top-a", "X", "keep tokens with p at least X times the best p squared"});
    v(tfs, {"--tfs", "X", "tail-free sampling; 1 is off, and so is 0"});
    v(typical, {"--typical", "X", "locally typical sampling; 1 is off, and so is 0"});
    v(mirostat_mode, {"--mirostat-mode", "0|2", "steer the surprise of the text; 0 is off"});
    v(mirostat_tau, {"--mirostat-tau", "X", "bits of surprise that mirostat aims at"});
    v(mirostat_eta, {"--mirostat-eta", "X", "how fast mirostat learns"});
    v(xtc_probability, {"--xtc-probability", "X", "chance that top choices are left out"});
    v(xtc_threshold, {"--xtc-threshold", "X", "probability from which a token is a top choice"});
    v(xtc_random, {"--xtc-random", "on|off", "draw that chance instead of its expectation"});
    v(skew, {"--skew", "X", "favour unlikely (> 0) or likely (< 0) tokens"});
    v(adaptive_target,
      {"--adaptive-target", "X", "favour tokens of about this probability; 1 is off"});
    v(adaptive_decay, {"--adaptive-decay", "X", "how long earlier choices count in that"});
    v(seed, {"--seed", "N", "seed of the draws", "random"});
  }

  // All other fields, under their names in JSON. Fields that JSON writes in several ways (stop,
  // logprobs) are read apart, by sampling_json.h.
  template <class V>
  void visit_rest(V&& v) {
    v(dry_sequence_breakers, {"dry_sequence_breakers"});
    v(dry_breaker_tokens, {"dry_breaker_tokens"});
    v(logit_bias, {"logit_bias"});
    v(banned_tokens, {"banned_tokens"});
    v(allowed_tokens, {"allowed_tokens"});
    v(xtc_ignore_tokens, {"xtc_ignore_tokens"});
    v(sampler_order, {"sampler_order"});
    v(max_tokens, {"max_tokens"});
    v(min_tokens, {"min_tokens"});
    v(ban_end_tokens, {"ban_eos_token"});
    v(stop_tokens, {"stop_token_ids"});
    v(banned_strings, {"banned_strings"});
    v(token_healing, {"token_healing"});
    v(cfg_scale, {"cfg_scale"});
    v(negative_prompt, {"negative_prompt"});
    v(n, {"n"});
    v(best_of, {"best_of"});
    v(top_logprobs, {"top_logprobs"});
    v(logprobs_after, {"logprobs_after"});
    v(prompt_logprobs, {"prompt_logprobs"});
    v(loop_detect_window, {"loop_detect_window"});
    v(loop_detect_repeats, {"loop_detect_repeats"});
  }
};

// Bounds of what one request may hold; beyond them is an error, so that no request costs others
// their memory.
struct SamplingLimits {
  static constexpr std::int64_t kMaxAnswers = 128;
  static constexpr std::int64_t kMaxLogprobs = 64;
  static constexpr std::size_t kMaxStrings = 256;         // of each list of texts …
  static constexpr std::size_t kMaxBannedStrings = 8192;  // … but of this one
  static constexpr std::size_t kMaxStringBytes = 4096;    // of one text
  static constexpr std::size_t kMaxListBytes = 1u << 17;  // of all texts of a list
  static constexpr std::size_t kMaxNegativePromptBytes = 1u << 20;
  static constexpr std::size_t kMaxTokens = 1u << 20;  // of all lists of ids and biases
};

// Brings the lists of validated parameters into the form in which chains use them: ascending, each
// token once; biases of one token are added up.
void prepare(SamplingParams& params);

// Throws kInvalidArgument with one line naming the parameter, its value and what would be right.
void validate(const SamplingParams& params);
// The same, and token ids, the lengths of their lists and top_k (unless it is the default) against
// the size of a vocabulary.
void validate(const SamplingParams& params, std::int64_t vocab);

// Whether a device's sampler (ops/sample.h: penalties without decay, biases and bans of some
// tokens, temperature, top-k, top-p, min-p, draw, or the likeliest; the log-probability of an
// unedited row's token) gives what the chain gives, once there are min_tokens. A request with
// anything else needs its row on the host.
bool device_sampleable(const SamplingParams& params);

// Whether a token's logit depends on more than the model.
bool edits_logits(const SamplingParams& params);

// Whether the choice depends on the tokens before it.
bool needs_history(const SamplingParams& params);

// The seed of answer `index` of a request with several; answer 0 keeps the request's.
std::uint64_t seed_of_answer(std::uint64_t seed, std::int64_t index);

}  // namespace bl
