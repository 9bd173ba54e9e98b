#include "backend/cuda/gemm/partition/partition_cache.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "backend/cuda/device/cuda_check.h"

namespace bl::cuda {

namespace {

// Beside whether there are pairs (1), spare multiprocessors (2), inputs of matrices' own (4).
constexpr std::uint64_t kKSplitsKey = 8;

// Strips that are nearly alike count as alike in products of one token: what can be gained by more
// CTAs there costs the next launch the multiprocessors that whole strips would leave it
// (bench/ladder/exl2_gemv).
void level_out(std::vector<NTileCosts>& matrices) {
  const auto [least, most] =
      std::minmax_element(matrices.begin(), matrices.end(),
                          [](const NTileCosts& a, const NTileCosts& b) { return a.cost < b.cost; });
  const std::uint64_t all = most->cost;
  if (all > least->cost + least->cost / 8) return;
  for (NTileCosts& matrix : matrices) matrix.cost = all;
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

PartitionCache::~PartitionCache() {
  for (auto& [key, entry] : entries_) cudaFree(const_cast<std::int32_t*>(entry.cta_ranges.begins));
  for (auto& [key, cta_ranges] : regs_) cudaFree(const_cast<RegsQuad*>(cta_ranges.quads));
}

CtaRanges PartitionCache::find(std::span<const CodeWeights* const> matrices,
                               const PartitionRequest& request) {
  std::vector<std::uint64_t> key{
      static_cast<std::uint64_t>(request.ctas),
      (request.pairs ? 1u : 0u) | (request.spare ? 2u : 0u) | (request.inputs ? 4u : 0u),
      static_cast<std::uint64_t>(request.late)};
  for (const CodeWeights* matrix : matrices) key.push_back(matrix->shape);
  Entry& entry = entries_[key];
  if (entry.cta_ranges.begins != nullptr) return entry.cta_ranges;
  std::vector<NTileCosts> costs;
  std::uint64_t heaviest = 0;
  for (const CodeWeights* matrix : matrices) {
    const auto cost = static_cast<std::uint64_t>(
        matrix->view.n_tile_bytes + scale_stride(matrix->view.kind, matrix->view.groups));
    heaviest = std::max(heaviest, cost);
    if (request.pairs && !costs.empty()) {
      costs.front().cost += cost;
    } else {
      costs.push_back({matrix->view.n_tiles, cost});
    }
  }
  if (request.spare) level_out(costs);
  const LateCtas late{request.spare ? 0 : request.late, heaviest};
  std::vector<std::int32_t> begins = request.spare ? partition_by_matrix(costs, request.ctas)
                                                   : partition_n_tiles(costs, request.ctas, late);
  if (request.inputs && costs.size() > 1) {
    // Loading activations takes about as long as a strip, digits of one token less.
    const std::uint64_t again = request.spare ? 0 : heaviest;
    begins =
        partition_by_input(costs, std::move(begins), {request.ctas, request.spare, late, again});
  }
  return keep(entry, std::move(begins));
}

CtaRanges PartitionCache::find_k_splits(const CodeWeights& matrix, int ctas) {
  const std::vector<std::uint64_t> key{static_cast<std::uint64_t>(ctas), kKSplitsKey, 0,
                                       matrix.shape};
  Entry& entry = entries_[key];
  if (entry.cta_ranges.begins != nullptr) return entry.cta_ranges;
  return keep(entry, partition_k_splits(matrix.view.n_tiles, ctas));
}

CtaRanges PartitionCache::keep(Entry& entry, std::vector<std::int32_t> begins) {
  entry.begins = std::move(begins);
  entry.cta_ranges = {copy_to_device(entry.begins), static_cast<int>(entry.begins.size()) - 1,
                      entry.begins};
  return entry.cta_ranges;
}

const DeviceRegsPlan& PartitionCache::find_regs_plan(const CodeWeights& matrix, int ctas,
                                                     int max_k_splits) {
  const std::vector<std::uint64_t> key{static_cast<std::uint64_t>(ctas),
                                       static_cast<std::uint64_t>(max_k_splits),
                                       max_k_splits == 1 ? matrix.k_tiling : matrix.shape};
  const auto known = regs_.find(key);
  if (known != regs_.end()) return known->second;
  DeviceRegsPlan cta_ranges;
  const RegsPlan plan = plan_regs(matrix.plan.k_blocks, matrix.view.n_tiles, ctas, max_k_splits);
  if (plan.k_splits > 0) cta_ranges = {plan, copy_to_device(plan.quads)};
  return regs_.emplace(key, cta_ranges).first->second;
}

}  // namespace bl::cuda
