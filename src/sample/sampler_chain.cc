#include "sample/sampler_chain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "sample/fast_exp.h"
#include "sample/log_probability.h"
#include "sample/philox.h"

namespace bl {

std::int32_t SamplerChain::pick(std::span<const float> logits,
                                std::span<const std::int32_t> history, std::uint64_t position) {
  logits = penalize(logits, history);
  const TopLogit top = top_logit(logits);
  if (params_.greedy() || params_.top_p == 0.0) return top.id;

  double total = 0;
  if (params_.top_k > 0 && params_.top_k < static_cast<std::int64_t>(logits.size())) {
    keep_top_k(logits);
    total = weigh(top.value);
    if (params_.top_p < 1) total = keep_top_p(top.value, total);
  } else if (params_.top_p < 1) {
    total = mass(logits, top.value);
    // Tokens below (1 − top_p) / vocab hold less than 1 − top_p together, so the nucleus has none
    // of them; the factor covers rounding.
    const double floor = 0.999 * (1 - params_.top_p) * total / static_cast<double>(logits.size());
    keep_above(logits, logit_of_weight(floor, top.value));
    total = keep_top_p(top.value, total);
  } else {
    // min-p is a fixed distance from the top, and nothing else needs the mass it cuts.
    keep_above(logits, logit_of_weight(0.999 * params_.min_p, top.value));
    total = weigh(top.value);
  }
  if (params_.min_p > 0) {
    // Weights are relative to the best token, whose weight is 1.
    const auto floor = static_cast<float>(params_.min_p);
    total = 0;
    for (float& weight : weights_) {
      if (weight < floor) weight = 0;
      total += static_cast<double>(weight);
    }
  }
  return draw(total, position);
}

std::span<const float> SamplerChain::penalize(std::span<const float> logits,
                                              std::span<const std::int32_t> history) {
  if (params_.repetition_penalty == 1.0) return logits;
  penalized_.assign(logits.begin(), logits.end());
  seen_.assign(logits.size(), false);
  const auto penalty = static_cast<float>(params_.repetition_penalty);
  for (const std::int32_t id : history) {
    const auto at = static_cast<std::size_t>(id);
    if (id < 0 || at >= logits.size() || seen_[at]) continue;
    seen_[at] = true;
    penalized_[at] = logits[at] > 0 ? logits[at] / penalty : logits[at] * penalty;
  }
  return penalized_;
}

void SamplerChain::keep_top_k(std::span<const float> logits) {
  const auto k = static_cast<std::size_t>(params_.top_k);
  // Collect whatever beats the k-th best so far; every time the buffer is twice as long as needed,
  // select again and raise the bar.
  const std::size_t room = 2 * k + 256;
  candidates_.clear();
  float bar = -std::numeric_limits<float>::infinity();
  const auto select = [&] {
    if (candidates_.size() <= k) return;
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k - 1),
                     candidates_.end(), better);
    candidates_.resize(k);
    bar = candidates_.back().logit;
  };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    // An equal logit of a higher id never displaces one that is kept.
    if (!(logits[i] > bar)) continue;
    candidates_.push_back({logits[i], static_cast<std::int32_t>(i)});
    if (candidates_.size() == room) select();
  }
  select();
}

float SamplerChain::logit_of_weight(double weight, float top) const {
  return static_cast<float>(static_cast<double>(top) + params_.temperature * std::log(weight));
}

void SamplerChain::keep_above(std::span<const float> logits, float cut) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= cut) candidates_.push_back({logits[i], static_cast<std::int32_t>(i)});
  }
}

double SamplerChain::mass(std::span<const float> logits, float top) const {
  constexpr std::size_t kLanes = 16;
  const float inverse = 1.0f / static_cast<float>(params_.temperature);
  double total = 0;
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    float weights[kLanes];
    for (std::size_t j = 0; j < kLanes; ++j) weights[j] = fast_exp((logits[i + j] - top) * inverse);
    float sum = 0;
    for (const float weight : weights) sum += weight;
    total += static_cast<double>(sum);
  }
  for (; i < logits.size(); ++i) {
    total += static_cast<double>(fast_exp((logits[i] - top) * inverse));
  }
  return total;
}

double SamplerChain::weigh(float top) {
  const float inverse = 1.0f / static_cast<float>(params_.temperature);
  weights_.resize(candidates_.size());
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    weights_[i] = fast_exp((candidates_[i].logit - top) * inverse);
  }
  double total = 0;
  for (const float weight : weights_) total += static_cast<double>(weight);
  return total;
}

double SamplerChain::keep_top_p(float top, double total) {
  constexpr std::ptrdiff_t kSmall = 128;
  const double wanted = params_.top_p * total;
  const float inverse = 1.0f / static_cast<float>(params_.temperature);
  const auto weight_of = [&](const Candidate& c) { return fast_exp((c.logit - top) * inverse); };
  // Halves the stretch in which the nucleus ends: everything before `low` is inside and holds
  // `inside`, everything from `high` on is outside.
  auto low = candidates_.begin();
  auto high = candidates_.end();
  double inside = 0;
  while (high - low > kSmall) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, better);
    double half = 0;
    for (auto it = low; it != middle; ++it) half += static_cast<double>(weight_of(*it));
    if (inside + half >= wanted) {
      high = middle;
    } else {
      inside += half;
      low = middle;
    }
  }
  std::sort(low, high, better);
  while (low != high && inside < wanted) inside += static_cast<double>(weight_of(*low++));
  if (low == candidates_.begin()) ++low;
  candidates_.erase(low, candidates_.end());
  return weigh(top);
}

std::int32_t SamplerChain::draw(double total, std::uint64_t position) const {
  BL_CHECK(!candidates_.empty() && total > 0);
  const double target = uniform_at(params_.seed, position) * total;
  double mass = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] == 0.0f) continue;
    last = i;
    mass += static_cast<double>(weights_[i]);
    if (mass > target) break;
  }
  return candidates_[last].id;
}

}  // namespace bl
