#include "backend/cuda/product_plan.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_check.h"

namespace bl::cuda {

ProductPlans::~ProductPlans() {
  for (auto& [key, entry] : entries_) cudaFree(const_cast<CtaShare*>(entry.shares));
}

ProductPlans::Entry ProductPlans::find(std::span<const CodeWeights* const> matrices, int ctas) {
  std::vector<std::uint64_t> key;
  for (const CodeWeights* matrix : matrices) key.push_back(matrix->shape);
  Entry& entry = entries_[key];
  if (entry.shares != nullptr) return entry;
  std::vector<MatrixShape> shapes;
  for (const CodeWeights* matrix : matrices) {
    MatrixShape& shape = shapes.emplace_back();
    shape.strips = matrix->view.strips;
    for (const Chunk& chunk : matrix->plan.chunks) {
      shape.costs.push_back(CodePackPlan::cost_of(chunk));
    }
  }
  const std::vector<CtaShare> shares = share_product(shapes, ctas);
  void* memory = nullptr;
  BL_CUDA_CHECK(cudaMalloc(&memory, shares.size() * sizeof(CtaShare)));
  BL_CUDA_CHECK(
      cudaMemcpy(memory, shares.data(), shares.size() * sizeof(CtaShare), cudaMemcpyHostToDevice));
  entry = {static_cast<const CtaShare*>(memory), static_cast<int>(shares.size())};
  return entry;
}

}  // namespace bl::cuda
