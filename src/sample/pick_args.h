#pragma once
#include <cstdint>
#include <span>

#include "sample/sampling_params.h"

namespace bl {

// What one choice of a token depends on, beside the parameters and the state.
struct PickArgs {
  std::span<const float> logits;            // [vocab], as the model gave them; not changed
  std::span<const std::int32_t> history{};  // the text so far, prompt included
  std::uint64_t position = 0;  // index in the text of the token that is chosen; keys the draw
  std::int64_t generated = 0;  // tokens of the answer so far; counts for min_tokens
  std::span<const std::int32_t> end_tokens{};  // the model's; barred as the parameters say
  std::span<const std::int32_t> barred{};      // barred here, such as what a rewind tried before
  // Of a constraint: token i may be chosen if bit i % 32 of word i / 32 is set; tokens beyond the
  // words may not. Empty: no constraint.
  std::span<const std::uint32_t> mask{};
};

struct Pick {
  std::int32_t id = 0;
  double probability = 1;  // in the final distribution; 1 where the choice is greedy
};

// What a request's earlier choices leave behind for later ones: part of the request, a plain value.
// Whoever takes tokens back (a banned string, a rejected draft) restores the state of that
// position.
struct SamplerState {
  explicit SamplerState(const SamplingParams& params)
      : mirostat_mu(2 * params.mirostat_tau),
        adaptive_sum(params.adaptive_target / (1 - params.adaptive_decay)),
        adaptive_weight(1 / (1 - params.adaptive_decay)) {}
  double mirostat_mu;      // bits; tokens of more surprise are cut
  double adaptive_sum;     // decayed sum of chosen probabilities
  double adaptive_weight;  // … of ones
  bool operator==(const SamplerState&) const = default;
};

}  // namespace bl
