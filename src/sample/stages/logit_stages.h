#pragma once
// Stages that edit logits, in the order in which they are applied. They touch the entries of a few
// tokens, unless thousands are barred.

#include "sample/stages/stage.h"

namespace bl {

// Repetition, presence and frequency penalty, in this order. Count distance d back from the newest
// token: an occurrence at distance d has strength 1 for d < range, (range + decay − d) / (decay +
// 1) for the `decay` tokens before those, and 0 beyond. With s the strength of a token's newest
// occurrence, repetition divides a positive logit by 1 + (r − 1) · s and multiplies any other with
// it, and presence subtracts p · s. Frequency subtracts f times the sum of strengths of all
// occurrences.
extern const SamplerStage kPenaltyStage;

// Adds the bias to the logit.
extern const SamplerStage kBiasStage;

// DRY, "don't repeat yourself" (p-e-w, text-generation-webui pull request 5677). If the newest L
// tokens occurred earlier and token t followed, and L ≥ allowed_length is the longest such match
// for t, then t loses multiplier · base^(L − allowed_length). Matches lie within dry_range and
// contain no sequence breaker; breakers themselves are never penalized. Penalties are capped at
// 1e6, more than logits of any model differ by. Takes time linear in the range for any text.
extern const SamplerStage kDryStage;

// Bars tokens (−∞): banned tokens, those missing from a list of allowed ones, end tokens before
// min_tokens, tokens that PickArgs bars, and tokens that a constraint's mask lacks.
extern const SamplerStage kBarStage;

// Top-nσ (Tang et al., "Top-nσ: not all logits are you need", 2024): sets row.floor to the highest
// logit minus n standard deviations. The deviation is that of the model's own finite logits, so
// that penalties and bars do not widen it. Requires row.top.
extern const SamplerStage kSigmaStage;

}  // namespace bl
