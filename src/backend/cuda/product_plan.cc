#include "backend/cuda/product_plan.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_check.h"

namespace bl::cuda {

ProductPlans::~ProductPlans() {
  for (auto& [key, entry] : entries_) cudaFree(const_cast<std::int32_t*>(entry.shares.begins));
}

StripShares ProductPlans::find(std::span<const CodeWeights* const> matrices, bool pairs, int ctas,
                               bool spare) {
  std::vector<std::uint64_t> key{static_cast<std::uint64_t>(ctas),
                                 (pairs ? 1u : 0u) | (spare ? 2u : 0u)};
  for (const CodeWeights* matrix : matrices) key.push_back(matrix->shape);
  Entry& entry = entries_[key];
  if (entry.shares.begins != nullptr) return entry.shares;
  std::vector<StripCosts> costs;
  for (const CodeWeights* matrix : matrices) {
    const auto cost = static_cast<std::uint64_t>(
        matrix->view.strip_bytes + scale_stride(matrix->view.kind, matrix->view.groups));
    if (pairs && !costs.empty()) {
      costs.front().cost += cost;
    } else {
      costs.push_back({matrix->view.strips, cost});
    }
  }
  if (spare) ctas = fewest_shares(costs, ctas);
  entry.begins = share_strips(costs, ctas);
  const std::size_t bytes = entry.begins.size() * sizeof(entry.begins[0]);
  void* memory = nullptr;
  BL_CUDA_CHECK(cudaMalloc(&memory, bytes));
  BL_CUDA_CHECK(cudaMemcpy(memory, entry.begins.data(), bytes, cudaMemcpyHostToDevice));
  entry.shares = {static_cast<const std::int32_t*>(memory),
                  static_cast<int>(entry.begins.size()) - 1, entry.begins};
  return entry.shares;
}

}  // namespace bl::cuda
