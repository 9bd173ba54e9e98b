#include "backend/cuda/gemm/partition/partition_cache.h"

#include <algorithm>

#include "backend/cuda/gemm/partition/partition.h"

namespace bl::cuda {

namespace {

// Added to the bits of a PartitionRequest: gated pairs (1), spare (2), inputs (4).
constexpr std::uint64_t kKSplitsKey = 8;

// GEMVs treat matrices whose n_tiles cost nearly the same as equal: what more CTAs would gain costs
// the next launch the multiprocessors that whole n_tiles leave free (bench/ladder/gemv_i8.md).
void level_out(std::vector<NTileCosts>& matrices) {
  const auto [least, most] =
      std::minmax_element(matrices.begin(), matrices.end(),
                          [](const NTileCosts& a, const NTileCosts& b) { return a.cost < b.cost; });
  const std::uint64_t all = most->cost;
  if (all > least->cost + least->cost / 8) return;
  for (NTileCosts& matrix : matrices) matrix.cost = all;
}

CtaRanges ranges_of(const std::vector<std::int32_t>& begins) {
  return {static_cast<int>(begins.size()) - 1, begins};
}

}  // namespace

CtaRanges PartitionCache::find(std::span<const CodeWeights* const> matrices,
                               const PartitionRequest& request) {
  Key key{static_cast<std::uint64_t>(request.ctas),
          (request.pairs ? 1u : 0u) | (request.spare ? 2u : 0u) | (request.inputs ? 4u : 0u),
          static_cast<std::uint64_t>(request.late)};
  for (const CodeWeights* matrix : matrices) key.push_back(matrix->shape);
  std::vector<std::int32_t>& begins = begins_[key];
  if (!begins.empty()) return ranges_of(begins);
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
  begins = request.spare ? partition_by_matrix(costs, request.ctas)
                         : partition_n_tiles(costs, request.ctas, late);
  if (request.inputs && costs.size() > 1) {
    // Loading activations takes about as long as an n_tile; making limbs of one token takes less.
    const std::uint64_t again = request.spare ? 0 : heaviest;
    begins =
        partition_by_input(costs, std::move(begins), {request.ctas, request.spare, late, again});
  }
  return ranges_of(begins);
}

CtaRanges PartitionCache::find_k_splits(const CodeWeights& matrix, int ctas) {
  const Key key{static_cast<std::uint64_t>(ctas), kKSplitsKey, 0, matrix.shape};
  std::vector<std::int32_t>& begins = begins_[key];
  if (begins.empty()) begins = partition_k_splits(matrix.view.n_tiles, ctas);
  return ranges_of(begins);
}

const RegsPlan& PartitionCache::find_regs_plan(const CodeWeights& matrix, int ctas,
                                               int max_k_splits) {
  const Key key{static_cast<std::uint64_t>(ctas), static_cast<std::uint64_t>(max_k_splits),
                max_k_splits == 1 ? matrix.k_tiling : matrix.shape};
  const auto known = regs_plans_.find(key);
  if (known != regs_plans_.end()) return known->second;
  return regs_plans_
      .emplace(key, plan_regs(matrix.plan.k_blocks, matrix.view.n_tiles, ctas, max_k_splits))
      .first->second;
}

}  // namespace bl::cuda
