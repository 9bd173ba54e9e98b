#pragma once
// Stages on logits, in the order in which they are applied. They touch the entries of few tokens,
// except where tokens are barred by the thousand.

#include "sample/stages/stage.h"

namespace bl {

// Repetition, presence and frequency penalty, in this order. The token d before the newest counts
// with strength 1 for d < range, (range + decay − d) / (decay + 1) for the `decay` tokens before
// those, and 0 beyond. Repetition divides a positive logit by, and multiplies another with,
// 1 + (r − 1) · strength; presence subtracts p · strength; both of the newest occurrence. Frequency
// subtracts f · Σ strength over all occurrences.
extern const SamplerStage kPenaltyStage;

// logit + bias.
extern const SamplerStage kBiasStage;

// "Don't repeat yourself" (p-e-w, text-generation-webui pull request 5677): if the newest L tokens
// occurred before, followed by token t, and L ≥ allowed_length is the longest such match for t,
// then t loses multiplier · base^(L − allowed_length). Matches hold no breaker and lie in the
// range; breakers themselves are never penalised. Penalties end at 1e6: no model's logits differ by
// more. Time linear in the range, whatever the text.
extern const SamplerStage kDryStage;

// Bars tokens (−∞): banned ones, all but allowed ones, end tokens before min_tokens, what the
// arguments bar, what a constraint's mask does not hold.
extern const SamplerStage kBarStage;

// Top-nσ (Tang et al., "Top-nσ: not all logits are you need", 2024): sets row.floor to the highest
// logit minus n standard deviations. The deviation is that of the model's own finite logits, so
// that penalties and bars do not widen it. Needs row.top.
extern const SamplerStage kSigmaStage;

}  // namespace bl
