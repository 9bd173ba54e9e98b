#include "backend/cuda/gemm/partition/partition_cache.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "backend/cuda/device/cuda_check.h"

namespace bl::cuda {

namespace {

// Beside whether there are pairs (1), spare multiprocessors (2), inputs of matrices' own (4).
constexpr std::uint64_t kPartsKey = 8;

// Strips that are nearly alike count as alike in products of one token: what can be gained by more
// CTAs there costs the next launch the multiprocessors that whole strips would leave it
// (bench/ladder/exl2_gemv).
void level_out(std::vector<StripCosts>& matrices) {
  const auto [least, most] =
      std::minmax_element(matrices.begin(), matrices.end(),
                          [](const StripCosts& a, const StripCosts& b) { return a.cost < b.cost; });
  const std::uint64_t all = most->cost;
  if (all > least->cost + least->cost / 8) return;
  for (StripCosts& matrix : matrices) matrix.cost = all;
}

template <class T>
const T* copy_to_device(const std::vector<T>& values) {
  void* memory = nullptr;
  const std::size_t bytes = values.size() * sizeof(values[0]);
  BL_CUDA_CHECK(cudaMalloc(&memory, bytes));
  BL_CUDA_CHECK(cudaMemcpy(memory, values.data(), bytes, cudaMemcpyHostToDevice));
  return static_cast<const T*>(memory);
}

}  // namespace

ProductPlans::~ProductPlans() {
  for (auto& [key, entry] : entries_) cudaFree(const_cast<std::int32_t*>(entry.shares.begins));
  for (auto& [key, shares] : held_) cudaFree(const_cast<HeldQuad*>(shares.quads));
}

StripShares ProductPlans::find(std::span<const CodeWeights* const> matrices,
                               const ShareWish& wish) {
  std::vector<std::uint64_t> key{
      static_cast<std::uint64_t>(wish.ctas),
      (wish.pairs ? 1u : 0u) | (wish.spare ? 2u : 0u) | (wish.inputs ? 4u : 0u),
      static_cast<std::uint64_t>(wish.late)};
  for (const CodeWeights* matrix : matrices) key.push_back(matrix->shape);
  Entry& entry = entries_[key];
  if (entry.shares.begins != nullptr) return entry.shares;
  std::vector<StripCosts> costs;
  std::uint64_t heaviest = 0;
  for (const CodeWeights* matrix : matrices) {
    const auto cost = static_cast<std::uint64_t>(
        matrix->view.strip_bytes + scale_stride(matrix->view.kind, matrix->view.groups));
    heaviest = std::max(heaviest, cost);
    if (wish.pairs && !costs.empty()) {
      costs.front().cost += cost;
    } else {
      costs.push_back({matrix->view.strips, cost});
    }
  }
  if (wish.spare) level_out(costs);
  const LateCtas late{wish.spare ? 0 : wish.late, heaviest};
  std::vector<std::int32_t> begins =
      wish.spare ? share_alone(costs, wish.ctas) : share_strips(costs, wish.ctas, late);
  if (wish.inputs && costs.size() > 1) {
    // Loading activations takes about as long as a strip, digits of one token less.
    const std::uint64_t again = wish.spare ? 0 : heaviest;
    begins = share_inputs(costs, std::move(begins), {wish.ctas, wish.spare, late, again});
  }
  return keep(entry, std::move(begins));
}

StripShares ProductPlans::find_parts(const CodeWeights& matrix, int ctas) {
  const std::vector<std::uint64_t> key{static_cast<std::uint64_t>(ctas), kPartsKey, 0,
                                       matrix.shape};
  Entry& entry = entries_[key];
  if (entry.shares.begins != nullptr) return entry.shares;
  return keep(entry, share_parts(matrix.view.strips, ctas));
}

StripShares ProductPlans::keep(Entry& entry, std::vector<std::int32_t> begins) {
  entry.begins = std::move(begins);
  entry.shares = {copy_to_device(entry.begins), static_cast<int>(entry.begins.size()) - 1,
                  entry.begins};
  return entry.shares;
}

const HeldShares& ProductPlans::find_held(const CodeWeights& matrix, int ctas, int most_parts) {
  const std::vector<std::uint64_t> key{static_cast<std::uint64_t>(ctas),
                                       static_cast<std::uint64_t>(most_parts),
                                       most_parts == 1 ? matrix.cut : matrix.shape};
  const auto known = held_.find(key);
  if (known != held_.end()) return known->second;
  HeldShares shares;
  const HeldPlan plan = plan_held(matrix.plan.chunks, matrix.view.strips, ctas, most_parts);
  if (plan.parts > 0) shares = {plan, copy_to_device(plan.quads)};
  return held_.emplace(key, shares).first->second;
}

}  // namespace bl::cuda
