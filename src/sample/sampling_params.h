#pragma once
// The parameters of a request that affect the choice of its tokens and what the engine does around
// it.
//
// Goals: one struct for the command line, JSON requests, presets and C++ programs; every value is
// checked once, at the edge, and nowhere after. Non-goal: grammars and other constraints, which
// reach the chain as a mask (PickArgs::mask).
//
// sample/README.md gives the order of the stages, the headers in sample/stages their formulas.

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
  // --- penalties on tokens that occurred before, in the prompt or the answer ---
  // 1: off. A positive logit is divided by it, any other is multiplied.
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;   // 0: off; subtracted once from each token that occurred
  double frequency_penalty = 0.0;  // 0: off; subtracted for every occurrence
  // Whether the two of them count the prompt as well as the answer. The repetition penalty always
  // does. In OpenAI's API they count the answer alone.
  bool penalize_prompt = true;
  std::int64_t penalty_range = -1;    // how many of the newest tokens count in full; -1: all
  std::int64_t repetition_decay = 0;  // over this many tokens before those, strength falls to 0

  // --- DRY: penalizes tokens that would continue a repeat of earlier text ---
  double dry_multiplier = 0.0;          // 0: off
  double dry_base = 1.75;               // penalty = multiplier · base^(length − allowed_length)
  std::int64_t dry_allowed_length = 2;  // repeats shorter than this cost nothing
  std::int64_t dry_range = 0;           // how many of the newest tokens are searched; 0 or -1: all
  // No repeat extends across a token that contains one of these texts. The edge turns them into the
  // ids below with tokens_containing() (token_sets.h).
  std::vector<std::string> dry_sequence_breakers{"\n", ":", "\"", "*"};
  std::vector<std::int32_t> dry_breaker_tokens;

  // --- which tokens may be chosen at all ---
  std::vector<TokenBias> logit_bias;
  std::vector<std::int32_t> banned_tokens;
  std::vector<std::int32_t> allowed_tokens;  // empty: all
  // Tokens given by their text (" yes"), each exactly the text of one token. The edge turns them
  // into ids in the two lists above.
  std::vector<std::string> banned_pieces;
  std::vector<std::string> allowed_pieces;

  // --- shape of the distribution ---
  double temperature = 0.8;       // 0: greedy
  bool temperature_last = false;  // apply temperature after the truncations, not before
  // Dynamic temperature replaces `temperature` and is always applied last: min + (max − min) ·
  // (entropy / its maximum)^exponent. Off unless max_temp > min_temp.
  double min_temp = 0.0;
  double max_temp = 0.0;
  double temp_exponent = 1.0;
  // 0: off; probability ∝ exp(−factor·x²), x: distance below the top.
  double smoothing_factor = 0.0;
  double smoothing_curve = 1.0;  // 1: quadratic only; up to 3: increasingly cubic

  // --- truncations, in this order ---
  double top_n_sigma = 0.0;        // 0: off; keeps logits within n standard deviations of the top
  std::int64_t top_k = 50;         // 0: off
  double top_p = 0.95;             // 1: off; keeps the token that reaches the share; 0: greedy
  double top_a = 0.0;              // 0: off; keeps p ≥ a · (the largest p)²
  double min_p = 0.0;              // 0: off; keeps p ≥ min_p · (the largest p)
  double tfs = 1.0;                // tail-free sampling; 0 or 1: off
  double typical = 1.0;            // locally typical sampling; 0 or 1: off
  std::int64_t mirostat_mode = 0;  // 0: off; 2: mirostat version 2
  double mirostat_tau = 1.5;       // target surprise in bits
  double mirostat_eta = 0.1;       // learning rate

  // --- after the truncations ---
  double xtc_probability = 0.0;  // 0: off
  // Tokens at least this likely may be cut, except the least likely of them.
  double xtc_threshold = 0.1;
  bool xtc_random = false;  // throw the coin for each token instead of using its expectation
  std::vector<std::int32_t> xtc_ignore_tokens;  // neither counted nor cut (xtc_protected_tokens())
  double skew = 0.0;             // 0: off; > 0 favors unlikely tokens, < 0 likely ones
  double adaptive_target = 1.0;  // 1: off; favors tokens of about this probability
  double adaptive_decay = 0.9;   // weight of earlier choices; 0 … 0.99

  // The stages from smoothing to adaptive-p in an order of the request's own, by the names that
  // SamplerChain::stage_names() gives. All stages that are on must be named. Empty: README.md's
  // order.
  std::vector<std::string> sampler_order;

  std::uint64_t seed = 0;

  // --- used by the engine; the chain only bars end tokens ---
  std::int64_t max_tokens = 0;  // 0: as many as the context length allows
  // End tokens and stop_tokens are barred until the answer has this many tokens.
  std::int64_t min_tokens = 0;
  bool ban_end_tokens = false;            // never choose the model's end tokens
  std::vector<std::int32_t> stop_tokens;  // end the answer, in addition to the model's end tokens
  std::vector<std::string> stop_strings;  // the answer ends before the first of these texts
  // Compared without regard to case; a match is taken back, and another token is chosen.
  std::vector<std::string> banned_strings;
  // Choose the prompt's last token again among those that begin with its text.
  bool token_healing = false;
  double cfg_scale = 1.0;  // 1: off; guidance: s·ln p(prompt) + (1 − s)·ln p(negative prompt)
  std::string negative_prompt;    // text to steer away from
  std::int64_t n = 1;             // answers to return
  std::int64_t best_of = 0;       // answers to compute, of which the n best are returned; 0: n
  bool logprobs = false;          // report log-probabilities of the chosen tokens
  std::int64_t top_logprobs = 0;  // also report this many likeliest tokens
  // Report the distribution after the chain instead of the model's own.
  bool logprobs_after = false;
  // Likeliest tokens to report for each prompt token; -1: no report.
  std::int64_t prompt_logprobs = -1;
  // 0: off; end if the last N tokens are one unit repeated …
  std::int64_t loop_detect_window = 0;
  std::int64_t loop_detect_repeats = 2;  // … at least this often

  bool operator==(const SamplingParams&) const = default;

  // All stages off, temperature 1, penalties of the answer alone: what OpenAI's API means where a
  // request leaves parameters out.
  static SamplingParams plain();

  // Below 1/1000 even the smallest difference between float logits decides. With a sampler_order, a
  // stage before top-k and top-p could change which token is the likeliest.
  bool greedy() const {
    return temperature < 1e-3 || (sampler_order.empty() && (top_k == 1 || top_p == 0));
  }
  bool dynamic_temperature() const { return max_temp > min_temp; }
  // Number of answers to compute.
  std::int64_t answers() const { return best_of > n ? best_of : n; }

  // The parameters that have flags of their own here; the command line defines flags for the rest.
  template <class V>
  void visit(V&& v) {
    v(temperature,
      {"--temperature", "X", "sampling temperature: higher is more random, 0 is greedy"});
    v(top_k, {"--top-k", "N", "sample from the N likeliest tokens only; 0: off"});
    v(top_p, {"--top-p", "X", "nucleus sampling: probability to keep, 0 … 1; 1: off"});
    v(min_p, {"--min-p", "X", "drop tokens below X times the best p, 0 … 1; 0: off"});
    v(repetition_penalty,
      {"--repetition-penalty", "X", "divide logits of tokens that occurred, 0.01 … 100; 1: off"});
    v(presence_penalty,
      {"--presence-penalty", "X", "subtract from logits of tokens that occurred, ±100; 0: off"});
    v(frequency_penalty,
      {"--frequency-penalty", "X", "subtract from logits per occurrence, ±100; 0: off"});
    v(penalty_range,
      {"--penalty-range", "N", "apply these penalties to the last N tokens; -1: all"});
    v(repetition_decay,
      {"--repetition-decay", "N", "let them fade out over the N tokens before those; 0: off"});
    v(dry_multiplier,
      {"--dry-multiplier", "X", "DRY: strength of the penalty on repeated sequences; 0: off"});
    v(dry_base, {"--dry-base", "X", "DRY: growth of the penalty per repeated token, 1 … 100"});
    v(dry_allowed_length,
      {"--dry-allowed-length", "N", "DRY: repeats shorter than N tokens are not penalized"});
    v(dry_range, {"--dry-range", "N", "DRY: look for repeats in the last N tokens; 0: all"});
    v(temperature_last,
      {"--temperature-last", "on|off", "apply temperature after the truncations"});
    v(min_temp, {"--min-temp", "X", "dynamic temperature: value at zero entropy"});
    v(max_temp, {"--max-temp", "X", "dynamic temperature: value at full entropy; on if above min"});
    v(temp_exponent,
      {"--temp-exponent", "X", "dynamic temperature: exponent of the entropy ratio, 0 … 100"});
    v(smoothing_factor,
      {"--smoothing-factor", "X", "smoothing (quadratic sampling): factor; 0: off"});
    v(smoothing_curve, {"--smoothing-curve", "X", "smoothing: from 1 (quadratic) to 3 (cubic)"});
    v(top_n_sigma,
      {"--top-n-sigma", "X", "top-nσ: keep logits within X deviations of the top; 0: off"});
    v(top_a, {"--top-a", "X", "keep tokens with p ≥ X times (best p)², 0 … 1; 0: off"});
    v(tfs, {"--tfs", "X", "tail-free sampling, 0 … 1; 0 and 1: off"});
    v(typical, {"--typical", "X", "locally typical sampling, 0 … 1; 0 and 1: off"});
    v(mirostat_mode,
      {"--mirostat-mode", "0|2", "mirostat: 2 holds the text's surprise near a target; 0: off"});
    v(mirostat_tau, {"--mirostat-tau", "X", "mirostat: target surprise in bits, 0 … 100"});
    v(mirostat_eta, {"--mirostat-eta", "X", "mirostat: learning rate, 0 … 10"});
    v(xtc_probability,
      {"--xtc-probability", "X", "XTC: probability of excluding top choices, 0 … 1; 0: off"});
    v(xtc_threshold,
      {"--xtc-threshold", "X", "XTC: tokens at least this likely are top choices, 0 … 1"});
    v(xtc_random,
      {"--xtc-random", "on|off", "XTC: throw the coin instead of using its expectation"});
    v(skew, {"--skew", "X", "favor unlikely (> 0) or likely (< 0) tokens, ±10; 0: off"});
    v(adaptive_target,
      {"--adaptive-target", "X", "adaptive-p: favor tokens of this probability, 0 … 1; 1: off"});
    v(adaptive_decay, {"--adaptive-decay", "X", "adaptive-p: weight of earlier choices, 0 … 0.99"});
    v(seed, {"--seed", "N", "seed of the random draws", "random"});
  }

  // All other fields, by their names in JSON. Fields that JSON may write in several ways (stop,
  // logprobs) are read separately in sampling_json.cc.
  template <class V>
  void visit_rest(V&& v) {
    v(penalize_prompt, {"penalize_prompt"});
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

// Limits on what one request may hold, so that no request takes the memory of others. Exceeding one
// is an error.
struct SamplingLimits {
  static constexpr std::int64_t kMaxAnswers = 128;
  static constexpr std::int64_t kMaxLogprobs = 64;
  static constexpr std::size_t kMaxStrings = 256;         // texts in a list, except …
  static constexpr std::size_t kMaxBannedStrings = 8192;  // … in banned_strings
  static constexpr std::size_t kMaxStringBytes = 4096;    // bytes in one text
  static constexpr std::size_t kMaxListBytes = 1u << 17;  // bytes in all texts of a list
  static constexpr std::size_t kMaxNegativePromptBytes = 1u << 20;
  static constexpr std::size_t kMaxTokens = 1u << 20;  // entries in all lists of ids and biases
};

// Puts the lists of validated parameters into the form that chains use: ascending, each token once,
// biases of one token added up.
void prepare(SamplingParams& params);

// Throws kInvalidArgument with one line that names the parameter, its value and what would be
// right.
void validate(const SamplingParams& params);
// Also checks token ids and the lengths of their lists against the size of the vocabulary. A top_k
// beyond it is right, and cuts nothing.
void validate(const SamplingParams& params, std::int64_t vocab);

// Whether a device's sampler (ops/sample.h) gives what the chain gives once there are min_tokens.
// It knows penalties without decay, biases and bans of a few tokens, such as the model's end
// tokens, temperature, top-k, top-p, min-p, the draw or the argmax, and the log-probability of the
// chosen token in an unedited row. A request with anything else needs its row on the host.
bool device_sampleable(const SamplingParams& params);

// Whether stages may change logits.
bool edits_logits(const SamplingParams& params);

// Whether the choice depends on earlier tokens.
bool needs_history(const SamplingParams& params);

// The seed of answer `index` of a request with several answers; answer 0 keeps the request's seed.
std::uint64_t seed_of_answer(std::uint64_t seed, std::int64_t index);

}  // namespace bl
