#pragma once
#include <span>

namespace bl {

// Classifier-free guidance: out = scale · ln p + (1 − scale) · ln q, where p and q are the
// distributions of the two rows of logits. The chain then takes `out` as the model's logits. A
// token that is impossible in either row is impossible in `out`. All are [vocab]; `out` may alias
// an input. Throws as top_logit() does for either row.
void mix_guidance(std::span<const float> logits, std::span<const float> negative, double scale,
                  std::span<float> out);

}  // namespace bl
