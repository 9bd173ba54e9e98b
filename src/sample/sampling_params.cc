#include "sample/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "base/error.h"
#include "sample/philox.h"
#include "sample/sampler_order.h"

namespace bl {
namespace {

constexpr std::int64_t kMany = std::int64_t{1} << 40;

void check_range(const char* name, double value, double low, double high, const char* right) {
  if (std::isfinite(value) && value >= low && value <= high) return;
  fail(ErrorCode::kInvalidArgument, "{} is {}, should be {}", name, value, right);
}

void check_count(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return;
  if (high == kMany) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, should be {} or above (below 2^40)", name, value,
         low);
  }
  fail(ErrorCode::kInvalidArgument, "{} is {}, should be in {} … {}", name, value, low, high);
}

void check_ids(const char* name, const std::vector<std::int32_t>& ids) {
  for (const std::int32_t id : ids) {
    if (id < 0) fail(ErrorCode::kInvalidArgument, "{} has {}, which is not a token id", name, id);
  }
}

void check_texts(const char* name, const std::vector<std::string>& texts, std::size_t most) {
  if (texts.size() > most) {
    fail(ErrorCode::kInvalidArgument, "{} lists {} texts; at most {} are allowed", name,
         texts.size(), most);
  }
  std::size_t bytes = 0;
  for (const std::string& text : texts) {
    if (text.empty()) fail(ErrorCode::kInvalidArgument, "{} has an empty text", name);
    if (text.size() > SamplingLimits::kMaxStringBytes) {
      fail(ErrorCode::kInvalidArgument, "{} has a text of {} bytes; at most {} are allowed", name,
           text.size(), SamplingLimits::kMaxStringBytes);
    }
    bytes += text.size();
  }
  if (bytes > SamplingLimits::kMaxListBytes) {
    fail(ErrorCode::kInvalidArgument, "{} has {} bytes in all; at most {} are allowed", name, bytes,
         SamplingLimits::kMaxListBytes);
  }
}

bool has_penalties(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
}

void check_penalties(const SamplingParams& p) {
  check_range("repetition_penalty", p.repetition_penalty, 0.01, 100, "in 0.01 … 100");
  check_range("presence_penalty", p.presence_penalty, -100, 100, "in -100 … 100");
  check_range("frequency_penalty", p.frequency_penalty, -100, 100, "in -100 … 100");
  if (has_penalties(p)) {
    check_count("penalty_range", p.penalty_range, -1, kMany);
    check_count("repetition_decay", p.repetition_decay, 0, kMany);
  }
  check_range("dry_multiplier", p.dry_multiplier, 0, 1000, "0 (off) or above, at most 1000");
  const bool has_dry = p.dry_multiplier > 0;
  if (has_dry) check_range("dry_base", p.dry_base, 1, 100, "in 1 … 100");
  if (has_dry) check_count("dry_allowed_length", p.dry_allowed_length, 1, kMany);
  if (has_dry) check_count("dry_range", p.dry_range, -1, kMany);
  check_texts("dry_sequence_breakers", p.dry_sequence_breakers, SamplingLimits::kMaxStrings);
  check_ids("dry_breaker_tokens", p.dry_breaker_tokens);
}

void check_tokens(const SamplingParams& p) {
  const std::size_t all = p.dry_breaker_tokens.size() + p.banned_tokens.size() +
                          p.allowed_tokens.size() + p.xtc_ignore_tokens.size() +
                          p.stop_tokens.size() + p.logit_bias.size();
  if (all > SamplingLimits::kMaxTokens) {
    fail(ErrorCode::kInvalidArgument,
         "banned_tokens, logit_bias and the other lists of tokens have {} entries in all; at most "
         "{} are allowed",
         all, SamplingLimits::kMaxTokens);
  }
  check_ids("banned_tokens", p.banned_tokens);
  check_ids("allowed_tokens", p.allowed_tokens);
  check_texts("banned_tokens", p.banned_pieces, SamplingLimits::kMaxStrings);
  check_texts("allowed_tokens", p.allowed_pieces, SamplingLimits::kMaxStrings);
  check_ids("xtc_ignore_tokens", p.xtc_ignore_tokens);
  check_ids("stop_token_ids", p.stop_tokens);
  for (const TokenBias& entry : p.logit_bias) {
    if (entry.id < 0) {
      fail(ErrorCode::kInvalidArgument, "logit_bias has {}, which is not a token id", entry.id);
    }
    if (!(entry.bias <= 1e4) || (entry.bias < -1e4 && std::isfinite(entry.bias))) {
      fail(ErrorCode::kInvalidArgument,
           "logit_bias of token {} is {}, should be in -10000 … 10000, or -inf to bar the token",
           entry.id, entry.bias);
    }
  }
}

// Only the lists are checked here: end tokens and constraints can bar the rest later.
void check_some_allowed(const SamplingParams& p) {
  if (p.allowed_tokens.empty() || !p.allowed_pieces.empty()) return;
  std::unordered_set<std::int32_t> barred(p.banned_tokens.begin(), p.banned_tokens.end());
  for (const TokenBias& entry : p.logit_bias) {
    if (std::isinf(entry.bias)) barred.insert(entry.id);
  }
  for (const std::int32_t id : p.allowed_tokens) {
    if (!barred.contains(id)) return;
  }
  fail(ErrorCode::kInvalidArgument,
       "allowed_tokens has {} ids, and all of them are barred by banned_tokens or logit_bias",
       p.allowed_tokens.size());
}

// A sampler that is off does not judge its other values: clients send whatever other servers
// declare as their defaults.
void check_shape(const SamplingParams& p) {
  check_range("temperature", p.temperature, 0, 1000, "0 (greedy) or above, at most 1000");
  if (!(p.max_temp <= p.min_temp)) {
    check_range("min_temp", p.min_temp, 0, 1000, "0 or above, at most 1000");
    check_range("max_temp", p.max_temp, 0, 1000, "0 or above, at most 1000");
    check_range("temp_exponent", p.temp_exponent, 0, 100, "in 0 … 100");
  }
  check_range("smoothing_factor", p.smoothing_factor, 0, 1000, "0 (off) or above, at most 1000");
  if (p.smoothing_factor > 0) check_range("smoothing_curve", p.smoothing_curve, 1, 3, "in 1 … 3");
  check_range("top_n_sigma", p.top_n_sigma, 0, 1000, "0 (off) or above, at most 1000");
  check_count("top_k", p.top_k, 0, kMany);
  check_range("top_p", p.top_p, 0, 1, "in 0 … 1");
  check_range("top_a", p.top_a, 0, 1, "in 0 … 1");
  check_range("min_p", p.min_p, 0, 1, "in 0 … 1");
  check_range("tfs", p.tfs, 0, 1, "in 0 … 1");
  check_range("typical", p.typical, 0, 1, "in 0 … 1");
  if (p.mirostat_mode != 0 && p.mirostat_mode != 2) {
    fail(ErrorCode::kInvalidArgument, "mirostat_mode is {}, should be 0 (off) or 2",
         p.mirostat_mode);
  }
  if (p.mirostat_mode != 0) {
    check_range("mirostat_tau", p.mirostat_tau, 0, 100, "in 0 … 100");
    check_range("mirostat_eta", p.mirostat_eta, 0, 10, "in 0 … 10");
  }
  check_range("xtc_probability", p.xtc_probability, 0, 1, "in 0 … 1");
  if (p.xtc_probability > 0) check_range("xtc_threshold", p.xtc_threshold, 0, 1, "in 0 … 1");
  check_range("skew", p.skew, -10, 10, "in -10 … 10");
  check_range("adaptive_target", p.adaptive_target, 0, 1, "in 0 … 1");
  if (p.adaptive_target < 1)
    check_range("adaptive_decay", p.adaptive_decay, 0, 0.99, "in 0 … 0.99");
}

void check_engine(const SamplingParams& p) {
  check_count("max_tokens", p.max_tokens, 0, kMany);
  check_count("min_tokens", p.min_tokens, 0, kMany);
  if (p.max_tokens > 0 && p.min_tokens > p.max_tokens) {
    fail(ErrorCode::kInvalidArgument, "min_tokens is {}, should be at most max_tokens ({})",
         p.min_tokens, p.max_tokens);
  }
  check_texts("stop", p.stop_strings, SamplingLimits::kMaxStrings);
  check_texts("banned_strings", p.banned_strings, SamplingLimits::kMaxBannedStrings);
  check_range("cfg_scale", p.cfg_scale, -100, 100, "in -100 … 100");
  if (p.negative_prompt.size() > SamplingLimits::kMaxNegativePromptBytes) {
    fail(ErrorCode::kInvalidArgument, "negative_prompt has {} bytes; at most {} are allowed",
         p.negative_prompt.size(), SamplingLimits::kMaxNegativePromptBytes);
  }
  check_count("n", p.n, 1, SamplingLimits::kMaxAnswers);
  check_count("best_of", p.best_of, 0, SamplingLimits::kMaxAnswers);
  if (p.best_of != 0 && p.best_of < p.n) {
    fail(ErrorCode::kInvalidArgument, "best_of is {}, should be at least n ({})", p.best_of, p.n);
  }
  check_count("top_logprobs", p.top_logprobs, 0, SamplingLimits::kMaxLogprobs);
  if (p.top_logprobs > 0 && !p.logprobs) {
    fail(ErrorCode::kInvalidArgument, "top_logprobs is {}, which needs logprobs: true",
         p.top_logprobs);
  }
  check_count("prompt_logprobs", p.prompt_logprobs, -1, SamplingLimits::kMaxLogprobs);
  check_count("loop_detect_window", p.loop_detect_window, 0, 1 << 20);
  if (p.loop_detect_window > 0) {
    check_count("loop_detect_repeats", p.loop_detect_repeats, 2, 1 << 20);
  }
}

std::int32_t id_of(std::int32_t id) { return id; }
std::int32_t id_of(const TokenBias& entry) { return entry.id; }

template <class T>
void check_below(const char* name, const std::vector<T>& list, std::int64_t vocab) {
  if (static_cast<std::int64_t>(list.size()) > vocab) {
    fail(ErrorCode::kInvalidArgument, "{} lists {} tokens, but the vocabulary has only {}", name,
         list.size(), vocab);
  }
  for (const T& entry : list) {
    const std::int32_t id = id_of(entry);
    if (id >= vocab) {
      fail(ErrorCode::kInvalidArgument, "{} has token {}, but the vocabulary ends at {}", name, id,
           vocab - 1);
    }
  }
}

bool has_equal_ids(const std::vector<TokenBias>& biases) {
  const auto descends = [](const TokenBias& a, const TokenBias& b) { return a.id >= b.id; };
  if (std::adjacent_find(biases.begin(), biases.end(), descends) == biases.end()) return false;
  std::vector<std::int32_t> ids;
  for (const TokenBias& entry : biases) ids.push_back(entry.id);
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) != ids.end();
}

void sort_ids(std::vector<std::int32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

}  // namespace

void prepare(SamplingParams& params) {
  sort_ids(params.dry_breaker_tokens);
  sort_ids(params.banned_tokens);
  sort_ids(params.allowed_tokens);
  sort_ids(params.xtc_ignore_tokens);
  sort_ids(params.stop_tokens);
  std::vector<TokenBias>& biases = params.logit_bias;
  std::stable_sort(biases.begin(), biases.end(),
                   [](const TokenBias& a, const TokenBias& b) { return a.id < b.id; });
  std::size_t kept = 0;
  for (const TokenBias& entry : biases) {
    if (kept > 0 && biases[kept - 1].id == entry.id) {
      biases[kept - 1].bias += entry.bias;
    } else {
      biases[kept++] = entry;
    }
  }
  biases.resize(kept);
}

SamplingParams SamplingParams::plain() {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  params.penalize_prompt = false;
  return params;
}

void validate(const SamplingParams& params) {
  check_penalties(params);
  check_tokens(params);
  check_some_allowed(params);
  check_shape(params);
  check_sampler_order(params);
  check_engine(params);
}

void validate(const SamplingParams& params, std::int64_t vocab) {
  validate(params);
  check_below("dry_breaker_tokens", params.dry_breaker_tokens, vocab);
  check_below("banned_tokens", params.banned_tokens, vocab);
  check_below("allowed_tokens", params.allowed_tokens, vocab);
  check_below("xtc_ignore_tokens", params.xtc_ignore_tokens, vocab);
  check_below("stop_token_ids", params.stop_tokens, vocab);
  check_below("logit_bias", params.logit_bias, vocab);
}

bool device_sampleable(const SamplingParams& p) {
  constexpr std::size_t kSomeTokens = 4096;  // moving more than this costs more than moving the row
  const bool plain_row = p.logit_bias.size() <= kSomeTokens &&
                         p.banned_tokens.size() <= kSomeTokens && p.allowed_tokens.empty() &&
                         p.dry_multiplier == 0 && p.repetition_decay == 0 && p.cfg_scale == 1;
  const bool plain_report =
      !p.logprobs || (p.top_logprobs == 0 && !p.logprobs_after && !edits_logits(p));
  if (!plain_row || !plain_report || !p.banned_strings.empty() || p.token_healing) return false;
  // The order in which biases are added would matter.
  if (has_equal_ids(p.logit_bias)) return false;
  if (p.greedy()) return true;
  if (p.top_p == 0) return false;  // SampleRule cannot express it
  return is_common_order(p) && p.top_n_sigma == 0;
}

bool edits_logits(const SamplingParams& p) {
  return needs_history(p) || !p.logit_bias.empty() || !p.banned_tokens.empty() ||
         !p.allowed_tokens.empty() || p.ban_end_tokens;
}

bool needs_history(const SamplingParams& p) {
  return (has_penalties(p) && (p.penalty_range != 0 || p.repetition_decay != 0)) ||
         p.dry_multiplier > 0;
}

std::uint64_t seed_of_answer(std::uint64_t seed, std::int64_t index) {
  if (index == 0) return seed;
  constexpr std::uint32_t kAnswers = 0x616e7377;  // keeps these counters apart from those of draws
  const auto i = static_cast<std::uint64_t>(index);
  const PhiloxBlock block = philox(
      {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), kAnswers, 0}, seed);
  return (std::uint64_t{block[0]} << 32) | block[1];
}

}  // namespace bl
