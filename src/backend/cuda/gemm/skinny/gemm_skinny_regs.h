#pragma once
// Products of 2 to 16 tokens with packed codes: every warp of a CTA holds the activations of its
// slots in registers, for all strips of the CTA, and brings the codes of these slots itself. So
// activations are read once, shared memory is left to codes, and warps meet only where their sums
// are added up. Where slots are cut in parts, each for CTAs of its own, each part has results of
// its own, which whoever reads them adds up: no CTA waits for another. Cards of compute capability
// 9 and later.

#include <array>
#include <cstdint>
#include <span>

#include "backend/cuda/gemm/packed_gemm_args.h"

namespace bl {
class CudaBackend;
}

namespace bl::cuda {

// Strips of CTAs, see CtaRanges.
struct RegsCtaRanges {
  CtaRangeBegins begins;
  int ctas = 0;
};

// A launch, planned.
struct RegsWork : RegsTiling {               // what holds for all matrices
  const RegsQuad* quads[kMaxMatrices] = {};  // device, of RegsPlan
  RegsCtaRanges cta_ranges;
  bool pairs = false;    // two strips at a time
  int k_split_rows = 0;  // of the output, from a part's results to the next one's

  bool exists() const { return k_splits > 0; }
};
// `args`: as product() gets them; `late`: see PartitionRequest.
RegsWork plan_skinny_regs(CudaBackend& backend, const PackedGemmArgs& args,
                          std::span<const CodeWeights* const> weights, int late);
// See is_small_cta_range(): LaunchPlan chooses for such launches by themselves.
bool is_small_work(const PackedGemmArgs& args, int ctas);

// Of several parts: the one output is [parts, work.k_split_rows], and nothing but the product
// itself goes into it.
void gemm_skinny_regs(ExecContext& ctx, const PackedGemmArgs& args, const RegsWork& work);

}  // namespace bl::cuda
