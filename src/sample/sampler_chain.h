#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "sample/sampling_params.h"

namespace bl {

// Chooses tokens from logits in host memory:
// repetition penalty → temperature → top-k → top-p → min-p → draw.
//
// Keeps scratch between calls and no other state: what it picks is a function of the arguments.
class SamplerChain {
 public:
  // `params` have been validated.
  explicit SamplerChain(const SamplingParams& params) : params_(params) {}

  // logits: [vocab]; history: the sequence so far, prompt included (ids ≥ vocab are ignored);
  // position: index in the text of the token being chosen. Throws as top_logit() does.
  std::int32_t pick(std::span<const float> logits, std::span<const std::int32_t> history,
                    std::uint64_t position);

  const SamplingParams& params() const { return params_; }

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
  };
  static bool better(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }

  std::span<const float> penalize(std::span<const float> logits,
                                  std::span<const std::int32_t> history);
  void keep_top_k(std::span<const float> logits);
  void keep_above(std::span<const float> logits, float cut);
  // The logit whose weight exp((logit − top) / temperature) is `weight`.
  float logit_of_weight(double weight, float top) const;
  // Σ of the weights of the whole vocabulary.
  double mass(std::span<const float> logits, float top) const;
  // Turns candidates_ into weights_ ∝ probability and returns their sum.
  double weigh(float top);
  // Keeps the likeliest candidates that hold top_p of `total`; returns what they hold.
  double keep_top_p(float top, double total);
  std::int32_t draw(double total, std::uint64_t position) const;

  SamplingParams params_;
  std::vector<float> penalized_;
  std::vector<bool> seen_;
  std::vector<Candidate> candidates_;
  std::vector<float> weights_;
};

}  // namespace bl
