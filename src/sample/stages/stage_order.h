#pragma once
#include <array>

#include "sample/stages/candidate_stages.h"
#include "sample/stages/logit_stages.h"

namespace bl {

// The order of the chain (docs/adr/0014-sampler-chain.md). Between the two lists the row is
// gathered into candidates, which does smoothing, temperature (unless it comes last) and top-k.
inline constexpr std::array<const SamplerStage*, 5> kLogitStages{
    &kPenaltyStage, &kBiasStage, &kDryStage, &kBarStage, &kSigmaStage};
inline constexpr std::array<const SamplerStage*, 10> kCandidateStages{&kTopPStage,
                                                                      &kTopAStage,
                                                                      &kMinPStage,
                                                                      &kTailFreeStage,
                                                                      &kTypicalStage,
                                                                      &kMirostatStage,
                                                                      &kLastTemperatureStage,
                                                                      &kExcludeTopStage,
                                                                      &kSkewStage,
                                                                      &kAdaptiveStage};

}  // namespace bl
