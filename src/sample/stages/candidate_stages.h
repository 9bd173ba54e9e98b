#pragma once
// Stages on candidates, in the order in which they are applied where the request has none of its
// own (sampler_order). The first three are then done while candidates are gathered (gather.h). p is
// a candidate's share of the mass that is left at that point; where candidates are equally likely,
// low ids come first.

#include "sample/stages/stage.h"

namespace bl {

// The score x below the best becomes −k·factor·x² + s·factor·x³, k and s as gather.h has them.
extern const SamplerStage kSmoothingStage;

// p^(1/T), or with the dynamic temperature of the present candidates (below).
extern const SamplerStage kTemperatureStage;

// The k likeliest.
extern const SamplerStage kTopKStage;

// Nucleus sampling (Holtzman et al. 2020): the likeliest candidates until their sum reaches top_p;
// the one that crosses is kept.
extern const SamplerStage kTopPStage;

// p ≥ a · (largest p)².
extern const SamplerStage kTopAStage;

// p ≥ min_p · (largest p) (Nguyen et al. 2024).
extern const SamplerStage kMinPStage;

// Tail-free sampling (Bricken 2019): with candidates in descending order, second differences of p
// taken absolute and normalised to sum 1, keeps one more than the number of leading ones whose
// cumulative sum stays within tfs. Fewer than three candidates, or p on a line, are left alone.
extern const SamplerStage kTailFreeStage;

// Locally typical sampling (Meister et al. 2022): candidates in ascending order of
// |−ln p − entropy| until the sum of p reaches `typical`; the one that crosses is kept.
extern const SamplerStage kTypicalStage;

// Mirostat version 2 (Basu et al. 2021), the cut: p ≥ 2^−mu; the likeliest is kept in any case. The
// chain moves mu after the draw.
extern const SamplerStage kMirostatStage;

// p^(1/T) where temperature comes last. Dynamic: T = min + (max − min) · (H / ln n)^exponent, H the
// entropy of the n candidates; not below 1/1000.
extern const SamplerStage kLastTemperatureStage;

// "Exclude top choices" (p-e-w, text-generation-webui pull request 6335). Candidates with
// p ≥ threshold that are not protected, all but the least likely of them, go with probability P
// together. Taken as the expectation of that coin: they are weighed by 1 − P, the others by
// 1 + P·m / (1 − m), m the mass of the former; the distribution of draws is the same. With
// xtc_random, the coin is thrown (DrawStream::kExclusion).
extern const SamplerStage kExcludeTopStage;

// A uniform number u becomes u^exp(−skew) on the cumulative sum in descending order: written as
// weights, F(c) = c^exp(skew) of cumulative sums c. skew > 0 favours the unlikely.
extern const SamplerStage kSkewStage;

// exllamav3's adaptive-p: score −10·d² / (d + 1), d = |p − a| / 0.3, where a, within 0 … 1, is
// twice the target minus the decayed mean of what was chosen before.
extern const SamplerStage kAdaptiveStage;

}  // namespace bl
