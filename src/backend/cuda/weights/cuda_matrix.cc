#include "backend/cuda/weights/cuda_matrix.h"

namespace bl::cuda {
namespace {

// FNV-1a of a table; tables with equal hashes are taken to be equal.
std::uint64_t hash_of(const std::vector<std::int32_t>& features) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::int32_t feature : features) {
    hash = (hash ^ static_cast<std::uint32_t>(feature)) * 0x100000001b3u;
  }
  return hash ^ features.size();
}

// Whether the features are in their own order, without padding.
bool is_identity_permutation(const std::vector<std::int32_t>& feature_of_k, std::int64_t in) {
  if (static_cast<std::int64_t>(feature_of_k.size()) != in) return false;
  for (std::size_t k = 0; k < feature_of_k.size(); ++k) {
    if (feature_of_k[k] != static_cast<std::int32_t>(k)) return false;
  }
  return true;
}

}  // namespace

std::size_t CudaMatrix::bytes() const {
  if (const DenseWeights* dense_weights = dense()) {
    return static_cast<std::size_t>(in() * out()) * size_of(dense_weights->type);
  }
  return codes()->bytes;
}

CodeWeights describe_codes(CodePackPlan plan, const std::byte* memory) {
  CodeWeights weights;
  const CodePackPlan::Layout layout = plan.layout();
  static_cast<CodeViews&>(weights) = views_of(plan, layout, memory);
  weights.max_copy_block_bytes = plan.max_copy_block_bytes();
  weights.max_copy_block_scale_bytes = plan.max_copy_block_scale_bytes();
  weights.bytes = layout.total;
  std::vector<std::int32_t> input_layout = plan.feature_of_k;
  weights.permutation = hash_of(input_layout);
  weights.is_identity = is_identity_permutation(input_layout, plan.in);
  std::vector<std::int32_t> k_tiling{static_cast<std::int32_t>(plan.kind), weights.view.zero};
  for (const KBlock& k_block : plan.k_blocks) {
    input_layout.push_back(k_block.k_steps);
    k_tiling.push_back(k_block.k_steps * 16 + k_block.bits);
    k_tiling.push_back(k_block.group);
  }
  for (const LimbRun& run : plan.runs) input_layout.push_back(run.k_steps);
  weights.input_layout = hash_of(input_layout);
  for (const CopyBlock& copy_block : plan.copy_blocks) k_tiling.push_back(copy_block.k_blocks);
  weights.k_tiling = hash_of(k_tiling);
  k_tiling.push_back(weights.view.n_tiles);
  weights.shape = hash_of(k_tiling);
  weights.plan = std::move(plan);
  return weights;
}

}  // namespace bl::cuda
