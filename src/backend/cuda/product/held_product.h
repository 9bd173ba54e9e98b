#pragma once
// Products of 2 to 16 tokens with packed codes: every warp of a CTA holds the activations of its
// slots in registers, for all strips of the CTA, and brings the codes of these slots itself. So
// activations are read once, shared memory is left to codes, and warps meet only where their sums
// are added up. Where a few CTAs have parts of the same strips, the last one to end adds them up:
// no CTA waits for another. Cards of compute capability 9 and later.

#include <array>
#include <cstdint>
#include <span>

#include "backend/cuda/product/product.h"

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
  // Where several CTAs have parts of the same strips.
  float* partials = nullptr;     // [parts][strips][kHeldStripSums]
  std::int32_t* done = nullptr;  // [shares.ctas], zeros before a launch and behind it

  bool exists() const { return parts > 0; }
};
// Without the memory of partial sums. `args`: as product() gets them.
HeldWork plan_held_work(CudaBackend& backend, const ProductArgs& args,
                        std::span<const CodeWeights* const> weights);
// See is_small_share(): LaunchPlan chooses for such launches by themselves.
bool is_small_work(const ProductArgs& args, int ctas);

void held_product(ExecContext& ctx, const ProductArgs& args, const HeldWork& work);

}  // namespace bl::cuda
