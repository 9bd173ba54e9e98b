#include "sample/stages/logit_stages.h"

namespace bl {
namespace {

bool wanted(const SamplingParams& p) { return !p.logit_bias.empty(); }

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  const std::span<float> logits = row.edit();
  for (const TokenBias& entry : p.logit_bias) {
    const auto id = static_cast<std::size_t>(entry.id);
    if (id < logits.size()) logits[id] += static_cast<float>(entry.bias);
  }
}

}  // namespace

const SamplerStage kBiasStage{"logit bias", wanted, apply};

}  // namespace bl
