#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cuda/scratch_plan.h"
#include "base/embedded_document.h"
#include "ops/backend.h"

namespace bl::cuda {

// Which kernels make a step's products, by its number of tokens: measured a compute capability
// (`bench --tune`), shipped as launch_plans/*.json. A card takes the plan of the highest capability
// that is not above its own. What a card or a build does not have is never chosen.
struct LaunchPlan {
  // Packed codes times so many tokens or more: activations made ready by a launch of their own;
  // times fewer by every CTA, in whole numbers (gemv_i8.cu).
  std::int64_t skinny_from = 2;
  // Packed codes times so many tokens or more: activations in shared memory (product.cu); times
  // fewer, but more than one, in registers (gemm_skinny_regs.cu).
  std::int64_t skinny_smem_from = 2;
  // The same for launches that give a CTA little to do (is_small_cta_range).
  std::int64_t small_skinny_smem_from = 2;
  // Activations are made rows of binary16 (many_rows.h), codes are expanded, and cuBLASLt
  // multiplies.
  std::int64_t large_from = 65;
  // The same rows, but codes are decoded in registers on their way into the tensor cores
  // (gemm_wgmma_dequant.cu; compute capability 9.0 alone); kNeverWgmma: never.
  static constexpr std::int64_t kNeverWgmma = 193;
  std::int64_t wgmma_from = kNeverWgmma;
  // One or the other. `decodes`: the card and the build can, and there are codes.
  std::int64_t large_or_wgmma_from(bool decodes) const {
    return decodes && wgmma_from < large_from ? wgmma_from : large_from;
  }
  // Large plain matrices (output layers): cuBLASLt instead of the kernel for a few tokens.
  std::int64_t dense_library_from = 9;

  // Name, value, and what the value may be.
  template <class V>
  void visit(V&& v) {
    v("skinny_from", skinny_from, 2, 3);
    v("skinny_smem_from", skinny_smem_from, 2, 25);
    v("small_skinny_smem_from", small_skinny_smem_from, 2, 25);
    v("large_from", large_from, kFewestLargeTokens, 65);
    v("wgmma_from", wgmma_from, kFewestLargeTokens, kNeverWgmma);
    v("dense_library_from", dense_library_from, 2, 65);
  }
};

// Throws kInvalidFile for what is no plan: an unknown or missing member, a value out of range.
LaunchPlan parse_launch_plan(std::string_view text, std::string_view what);
// Of the documents named "cc" and a compute capability.
LaunchPlan find_launch_plan(std::span<const EmbeddedDocument> plans, int compute_capability);

std::vector<LaunchChoice> choices_of(LaunchPlan plan);
// Throws kInvalidArgument for an unknown name or a value out of range.
void set_choice(LaunchPlan& plan, std::string_view name, std::int64_t from);

}  // namespace bl::cuda
