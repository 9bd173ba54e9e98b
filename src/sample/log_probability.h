#pragma once
// Figures of log-softmax rows, computed without storing the rows, for perplexity and the distance
// between two models.

#include <cstdint>
#include <span>

namespace bl {

// The largest logit and its id; ties go to the lowest id. Throws kInvalidFile, naming the token, if
// a logit is NaN or +∞, and also if all are −∞: only damaged weights cause that.
struct TopLogit {
  float value = 0.0f;
  std::int32_t id = 0;
};
TopLogit top_logit(std::span<const float> logits);

// ln Σ exp(logit) over a row [vocab]. Throws as top_logit() does.
double log_sum_exp(std::span<const float> logits);

// Natural logarithm of the probability of `id` under softmax. Throws as top_logit() does.
double log_probability(std::span<const float> logits, std::int32_t id);

// KL divergence D(base ‖ other) = Σ p·(ln p − ln q) in nats, of two rows of logits [vocab].
double kl_divergence(std::span<const float> base, std::span<const float> other);

}  // namespace bl
