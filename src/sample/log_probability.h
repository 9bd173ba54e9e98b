#pragma once
// Figures of log-softmax rows, computed without storing them: what perplexity and the distance
// between two models are made of.

#include <cstdint>
#include <span>

namespace bl {

// The largest logit and its id, ties to the lowest id. Throws kInvalidFile when a logit is NaN or
// +∞, naming the token, and when all are −∞: only damaged weights do that.
struct TopLogit {
  float value = 0.0f;
  std::int32_t id = 0;
};
TopLogit top_logit(std::span<const float> logits);

// ln Σ exp(logit).
double log_sum_exp(std::span<const float> logits);

// ln of the probability of `id`.
double log_probability(std::span<const float> logits, std::int32_t id);

// D(base ‖ other) = Σ p·(ln p − ln q) over one row of each, in nats.
double kl_divergence(std::span<const float> base, std::span<const float> other);

}  // namespace bl
