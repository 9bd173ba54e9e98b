#pragma once
#include <cstdint>
#include <span>

#include "sample/sampling_params.h"

namespace bl {

// The inputs to one choice of a token, apart from the parameters and the state.
struct PickArgs {
  std::span<const float> logits;            // [vocab], as the model computed them; read only
  std::span<const std::int32_t> history{};  // all tokens so far, including the prompt
  std::uint64_t position = 0;  // index in the text of the token being chosen; keys the draw
  // Number of tokens in the answer so far: the newest ones of `history`. min_tokens and penalties
  // that leave the prompt out count these.
  std::int64_t generated = 0;
  // How often the answer was taken back to an earlier place so far (a banned string). Draws after
  // that need other random numbers: the old ones are known to lead to the text that was taken back.
  std::uint32_t rewinds = 0;
  // The model's end tokens, which the parameters may bar.
  std::span<const std::int32_t> end_tokens{};
  // Barred for this choice only, such as what a rewind has already tried.
  std::span<const std::int32_t> barred{};
  // The mask of a constraint: token i may be chosen if bit i % 32 of word i / 32 is set, and tokens
  // beyond the last word may not. Empty means no constraint.
  std::span<const std::uint32_t> mask{};
};

struct Pick {
  std::int32_t id = 0;
  double probability = 1;  // in the final distribution; 1 for a greedy choice
};

// State that a request's earlier choices leave for later ones: a plain value, part of the request.
// Whoever undoes tokens (a banned string, a rejected draft) restores the state of that position.
struct SamplerState {
  explicit SamplerState(const SamplingParams& params)
      : mirostat_mu(2 * params.mirostat_tau),
        adaptive_sum(params.adaptive_target / (1 - params.adaptive_decay)),
        adaptive_weight(1 / (1 - params.adaptive_decay)) {}
  double mirostat_mu;      // in bits; tokens with a larger surprise are cut
  double adaptive_sum;     // decayed sum of the chosen tokens' probabilities
  double adaptive_weight;  // decayed count of the chosen tokens
  bool operator==(const SamplerState&) const = default;
};

}  // namespace bl
