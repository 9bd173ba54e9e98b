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

// Strips of CTAs, see StripShares.
struct HeldStrips {
  ShareBegins begins;
  int ctas = 0;
};

// A launch, planned.
struct HeldWork : HeldCut {                  // what holds for all matrices
  const HeldQuad* quads[kMaxMatrices] = {};  // device, of HeldPlan
  HeldStrips shares;
  bool pairs = false;  // two strips at a time
  int part_rows = 0;   // of the output, from a part's results to the next one's

  bool exists() const { return parts > 0; }
};
// `args`: as product() gets them; `late`: see ShareWish.
HeldWork plan_held_work(CudaBackend& backend, const ProductArgs& args,
                        std::span<const CodeWeights* const> weights, int late);
// See is_small_share(): LaunchPlan chooses for such launches by themselves.
bool is_small_work(const ProductArgs& args, int ctas);

// Of several parts: the one output is [parts, work.part_rows], and nothing but the product itself
// goes into it.
void held_product(ExecContext& ctx, const ProductArgs& args, const HeldWork& work);

}  // namespace bl::cuda
