#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cuda/layout/gemm_limits.h"
#include "base/embedded_document.h"
#include "ops/backend.h"

namespace bl::cuda {

// From how many tokens on which kernel runs: measured for each compute capability by `bench --tune`
// and shipped as plans/*.json. A card uses the newest plan whose compute capability is not above
// its own. A kernel that the card or the build lacks is never chosen (route.h).
struct LaunchPlan {
  // Packed codes: below this, every CTA packs the activations for itself, as int8 limbs (gemv_i8/);
  // from here on a separate launch in front packs them (skinny/).
  std::int64_t skinny_from = 2;
  // Packed codes: below this, and above one token, activations are held in registers; from here on
  // they go through shared memory.
  std::int64_t skinny_smem_from = 2;
  // As skinny_smem_from, for launches with little work per CTA (is_small_cta_range).
  std::int64_t small_skinny_smem_from = 2;
  // Activations become binary16 rows, codes are dequantized into memory, and cuBLASLt multiplies
  // (large/).
  std::int64_t large_from = 65;
  // Activations become binary16 rows, and codes are dequantized in registers on their way into
  // wgmma (wgmma/; compute capability 9.0 alone). kNeverWgmma: never.
  static constexpr std::int64_t kNeverWgmma = 193;
  std::int64_t wgmma_from = kNeverWgmma;
  // Returns the first number of tokens for which a matrix runs on one of the two paths above.
  // `wgmma`: the card, the build and the matrix support the second one.
  std::int64_t large_or_wgmma_from(bool wgmma) const {
    return wgmma && wgmma_from < large_from ? wgmma_from : large_from;
  }
  // Large plain matrices (output layers): cuBLASLt instead of the kernel for a few tokens.
  std::int64_t dense_library_from = 9;

  // Calls v(name, value, least, most) for every threshold.
  template <class V>
  void visit(V&& v) {
    v("skinny_from", skinny_from, 2, 5);
    v("skinny_smem_from", skinny_smem_from, 2, 25);
    v("small_skinny_smem_from", small_skinny_smem_from, 2, 25);
    v("large_from", large_from, kFewestLargeTokens, 65);
    v("wgmma_from", wgmma_from, kFewestLargeTokens, kNeverWgmma);
    v("dense_library_from", dense_library_from, 2, 65);
  }
};

// Throws kInvalidFile unless `text` is a plan: every member known and present, every value in
// range.
LaunchPlan parse_launch_plan(std::string_view text, std::string_view what);
// Returns the newest plan, among documents named "cc" and a compute capability, whose capability is
// not above `compute_capability`.
LaunchPlan find_launch_plan(std::span<const EmbeddedDocument> plans, int compute_capability);

std::vector<LaunchChoice> choices_of(LaunchPlan plan);
// Throws kInvalidArgument for an unknown name or a value out of range.
void set_choice(LaunchPlan& plan, std::string_view name, std::int64_t from);

}  // namespace bl::cuda
