#pragma once
// Stages that work on candidates, in the default order; a request may rearrange them
// (sampler_order). The first three are normally done while candidates are gathered (gather.h). In
// the formulas, p is a candidate's share of the mass at that point. Candidates that are equally
// likely are ordered by id.

#include "sample/stages/stage.h"

namespace bl {

// With x the score minus the best score: x becomes −k·factor·x² + s·factor·x³, with k and s as in
// gather.h.
extern const SamplerStage kSmoothingStage;

// p becomes p^(1/T). T may also be the dynamic temperature (below).
extern const SamplerStage kTemperatureStage;

// Keeps the k likeliest.
extern const SamplerStage kTopKStage;

// Nucleus sampling (Holtzman et al. 2020): keeps the likeliest candidates until their sum reaches
// top_p, including the one that reaches it.
extern const SamplerStage kTopPStage;

// Keeps p ≥ a · (largest p)².
extern const SamplerStage kTopAStage;

// Keeps p ≥ min_p · (largest p) (Nguyen et al. 2024).
extern const SamplerStage kMinPStage;

// Tail-free sampling (Bricken 2019). With candidates in descending order, takes the absolute second
// differences of p, normalized to sum 1, and keeps one candidate more than there are leading ones
// with a cumulative sum within tfs. Does nothing for fewer than three candidates or if p falls in a
// line.
extern const SamplerStage kTailFreeStage;

// Locally typical sampling (Meister et al. 2022): keeps candidates in ascending order of
// |−ln p − entropy| until the sum of p reaches `typical`, including the one that reaches it.
extern const SamplerStage kTypicalStage;

// The cut of Mirostat version 2 (Basu et al. 2021): keeps p ≥ 2^−mu, and always the likeliest. The
// chain updates mu after the draw.
extern const SamplerStage kMirostatStage;

// p becomes p^(1/T) if temperature comes last. With dynamic temperature, T = min + (max − min) · (H
// / ln n)^exponent, H being the entropy of the n candidates, and at least 1/1000.
extern const SamplerStage kLastTemperatureStage;

// XTC, "exclude top choices" (p-e-w, text-generation-webui pull request 6335). The candidates with
// p ≥ threshold that are not protected, except the least likely of them, are removed together with
// probability P. The stage applies the expectation of that coin: their weights are multiplied by 1
// − P, all others by 1 + P·m / (1 − m), m being the mass of the former; draws have the same
// distribution. With xtc_random the coin is thrown (DrawStream::kExclusion).
extern const SamplerStage kExcludeTopStage;

// Maps the uniform number u of the draw to u^exp(−skew) on the cumulative sum in descending order;
// done on weights, by making each cumulative sum c into c^exp(skew). skew > 0 favors the unlikely.
extern const SamplerStage kSkewStage;

// exllamav3's adaptive-p: the score becomes −10·d² / (d + 1) with d = |p − a| / 0.3. The aim a,
// clamped to 0 … 1, is twice the target minus the decayed mean probability of earlier choices.
extern const SamplerStage kAdaptiveStage;

}  // namespace bl
