#include "backend/cuda/gemm/activations/pack_activations.h"

namespace bl::cuda {

int pack_ctas(std::int64_t tokens, bool sums) {
  // k_block_sums of a row are made by one CTA; otherwise up to three CTAs share a row.
  constexpr int kMaxCtasPerRow = 3;
  return static_cast<int>(tokens) * (sums ? 1 : kMaxCtasPerRow);
}

}  // namespace bl::cuda
