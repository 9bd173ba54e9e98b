#pragma once
#include <span>

namespace bl {

// Classifier-free guidance: out = scale · ln p + (1 − scale) · ln q, of the distributions that two
// rows of logits stand for; what the chain then takes as the logits of the model. A token that
// either of them cannot have stays out. All [vocab]; `out` may be one of the others. Throws as
// top_logit() does for either row.
void mix_guidance(std::span<const float> logits, std::span<const float> negative, double scale,
                  std::span<float> out);

}  // namespace bl
