#include "backend/cuda/gemm/activations/pack_activations.h"

#include "backend/cuda/weights/cuda_matrix.h"

namespace bl::cuda {

FragmentTarget fragment_target_of(const CodeWeights& weights) {
  FragmentTarget target;
  target.feature_of_k = weights.feature_of_k;
  target.k_steps = weights.view.k_steps;
  target.k_blocks = weights.view.k_blocks;
  target.k_block_count = weights.view.k_block_count;
  return target;
}

int pack_ctas(std::int64_t tokens, bool sums) {
  // k_block_sums of a row are made by one CTA; otherwise up to three CTAs share a row.
  constexpr int kMaxCtasPerRow = 3;
  return static_cast<int>(tokens) * (sums ? 1 : kMaxCtasPerRow);
}

}  // namespace bl::cuda
