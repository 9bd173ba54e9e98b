#include "backend/cuda/gemm/partition/partition.h"

#include <algorithm>

#include "backend/cuda/gemm/partition/cta_ranges.h"
#include "backend/cuda/layout/gemm_limits.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

std::uint64_t cost_of_range(const NTileCosts& matrix) {
  return matrix.cost * static_cast<std::uint64_t>(matrix.n_tiles);
}

}  // namespace

std::vector<std::int32_t> partition_n_tiles(std::span<const NTileCosts> matrices, int ctas) {
  std::uint64_t total = 0;
  std::int32_t n_tiles = 0;
  for (const NTileCosts& matrix : matrices) {
    BL_CHECK(matrix.n_tiles > 0 && matrix.cost > 0);
    total += cost_of_range(matrix);
    n_tiles += matrix.n_tiles;
  }
  const auto cta_ranges = static_cast<std::uint64_t>(std::min<std::int64_t>(ctas, n_tiles));
  std::vector<std::int32_t> begins{0};
  std::size_t at = 0;             // index of the matrix where the next range begins
  std::uint64_t cost_before = 0;  // of all matrices before that one
  std::int32_t n_tiles_before = 0;
  for (std::uint64_t s = 1; s < cta_ranges; ++s) {
    const std::uint64_t target = (total * s + cta_ranges - 1) / cta_ranges;
    while (at + 1 < matrices.size() && cost_before + cost_of_range(matrices[at]) <= target) {
      cost_before += cost_of_range(matrices[at]);
      n_tiles_before += matrices[at++].n_tiles;
    }
    const std::uint64_t remaining = target - std::min(target, cost_before);
    const auto inside = static_cast<std::int32_t>(remaining / matrices[at].cost);
    const std::int32_t wanted = n_tiles_before + std::min(inside, matrices[at].n_tiles);
    // Costs may differ so much that a range would be empty, so each gets at least one n_tile.
    const auto left = static_cast<std::int32_t>(cta_ranges - s);
    begins.push_back(std::clamp(wanted, begins.back() + 1, n_tiles - left));
  }
  begins.push_back(n_tiles);
  return begins;
}

CtaRangeBegins::CtaRangeBegins(const CtaRanges& ranges, const std::int32_t* device_begins) {
  if (ranges.ctas <= kMost) {
    std::copy(ranges.begins.begin(), ranges.begins.end(), near);
  } else {
    far = device_begins;
  }
}

namespace {

// Calls f(costs) for the part of each matrix that lies among n_tiles [begin, end) of all.
template <class F>
void for_each_matrix(std::span<const NTileCosts> matrices, std::int32_t begin, std::int32_t end,
                     const F& f) {
  std::int32_t before = 0;
  for (const NTileCosts& matrix : matrices) {
    const std::int32_t from = std::max(begin, before);
    const std::int32_t to = std::min(end, before + matrix.n_tiles);
    if (to > from) f(NTileCosts{to - from, matrix.cost});
    before += matrix.n_tiles;
  }
}

std::vector<NTileCosts> slice_n_tiles(std::span<const NTileCosts> matrices, std::int32_t begin,
                                      std::int32_t end) {
  std::vector<NTileCosts> slice;
  for_each_matrix(matrices, begin, end, [&](const NTileCosts& matrix) { slice.push_back(matrix); });
  return slice;
}

// Returns the time of a CTA of the int8 GEMV in costs of n_tiles. A group of up to kGemvNTiles
// n_tiles costs one n_tile on top, and a single n_tile as much as two (measured instructions of a
// pair of k_blocks, bench/ladder/gemv_i8.md).
std::uint64_t time_alone(const NTileCosts& matrix) {
  const std::int32_t remainder = matrix.n_tiles % kGemvNTiles;
  const std::int32_t of_remainder = remainder == 0 ? 0 : std::max(remainder, 2) + 1;
  return cost_of_range(
      {matrix.n_tiles / kGemvNTiles * (kGemvNTiles + 1) + of_remainder, matrix.cost});
}

using RangeTime =
    std::uint64_t (*)(const NTileCosts&);  // of the n_tiles that a range has of one matrix

// Returns the cost of the costliest of ranges [first, last).
std::uint64_t longest_of(std::span<const NTileCosts> matrices, std::span<const std::int32_t> begins,
                         std::size_t first, std::size_t last, RangeTime time = cost_of_range) {
  std::uint64_t most = 0;
  for (std::size_t i = first; i < last; ++i) {
    std::uint64_t all = 0;
    for_each_matrix(matrices, begins[i], begins[i + 1],
                    [&](const NTileCosts& matrix) { all += time(matrix); });
    most = std::max(most, all);
  }
  return most;
}

// Returns when the last CTA ends, in the costs of n_tiles.
std::uint64_t time_of(std::span<const NTileCosts> matrices, std::span<const std::int32_t> begins,
                      const LateCtas& late, RangeTime time = cost_of_range) {
  const std::size_t cta_ranges = begins.size() - 1;
  const std::size_t early = cta_ranges - std::min(static_cast<std::size_t>(late.count), cta_ranges);
  std::uint64_t longest = longest_of(matrices, begins, 0, early, time);
  if (early < cta_ranges) {
    longest = std::max(longest, longest_of(matrices, begins, early, cta_ranges, time) + late.cost);
  }
  return longest;
}

// Partitions so that no range has n_tiles of two matrices: while CTAs are left, the matrix whose
// ranges take longest gets one more. `ctas` is at least the number of matrices.
std::vector<std::int32_t> partition_apart(std::span<const NTileCosts> matrices, int ctas,
                                          RangeTime time) {
  std::vector<std::int32_t> cta_ranges(matrices.size(), 1);
  const auto time_of = [&](std::size_t m) {
    return time({(matrices[m].n_tiles + cta_ranges[m] - 1) / cta_ranges[m], matrices[m].cost});
  };
  for (auto used = static_cast<int>(matrices.size()); used < ctas; ++used) {
    std::size_t slowest = 0;
    for (std::size_t m = 1; m < matrices.size(); ++m) {
      if (time_of(m) > time_of(slowest)) slowest = m;
    }
    if (cta_ranges[slowest] == matrices[slowest].n_tiles) break;
    ++cta_ranges[slowest];
  }
  std::vector<std::int32_t> begins{0};
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    const std::int32_t before = begins.back();
    for (const std::int32_t at : partition_n_tiles(matrices.subspan(m, 1), cta_ranges[m])) {
      if (at > 0) begins.push_back(before + at);
    }
  }
  return begins;
}

}  // namespace

std::vector<std::int32_t> partition_n_tiles(std::span<const NTileCosts> matrices, int ctas,
                                            const LateCtas& late) {
  std::vector<std::int32_t> best = partition_n_tiles(matrices, ctas);
  const int cta_ranges = static_cast<int>(best.size()) - 1;
  if (late.count <= 0 || late.count >= cta_ranges) return best;
  const auto early = static_cast<std::size_t>(cta_ranges - late.count);
  std::uint64_t least = time_of(matrices, best, late);
  const std::int32_t n_tiles = best.back();
  for (std::int32_t border = best[early] + 1; border <= n_tiles - late.count; ++border) {
    std::vector<std::int32_t> begins =
        partition_n_tiles(slice_n_tiles(matrices, 0, border), static_cast<int>(early));
    if (longest_of(matrices, begins, 0, early) >= least) break;
    begins.pop_back();
    for (const std::int32_t at :
         partition_n_tiles(slice_n_tiles(matrices, border, n_tiles), late.count)) {
      begins.push_back(border + at);
    }
    const std::uint64_t time = time_of(matrices, begins, late);
    if (time >= least) continue;
    least = time;
    best = std::move(begins);
  }
  return best;
}

int fewest_cta_ranges(std::span<const NTileCosts> matrices, int ctas) {
  const auto longest = [&](int cta_ranges) {
    const std::vector<std::int32_t> begins = partition_n_tiles(matrices, cta_ranges);
    return longest_of(matrices, begins, 0, begins.size() - 1);
  };
  const std::uint64_t bound = longest(ctas);
  int fewest = ctas;
  for (int cta_ranges = ctas - 1; cta_ranges > ctas * 7 / 8; --cta_ranges) {
    if (longest(cta_ranges) <= bound) fewest = cta_ranges;
  }
  return fewest;
}

std::vector<std::int32_t> partition_by_matrix(std::span<const NTileCosts> matrices, int ctas) {
  std::vector<std::int32_t> mixed = partition_n_tiles(matrices, fewest_cta_ranges(matrices, ctas));
  const auto cta_ranges = static_cast<int>(mixed.size()) - 1;
  if (matrices.size() == 1 || cta_ranges < static_cast<int>(matrices.size())) return mixed;
  std::vector<std::int32_t> apart = partition_apart(matrices, cta_ranges, time_alone);
  const auto time = [&](const std::vector<std::int32_t>& begins) {
    return time_of(matrices, begins, {}, time_alone);
  };
  return time(apart) < time(mixed) ? apart : mixed;
}

std::vector<std::int32_t> partition_by_input(std::span<const NTileCosts> matrices,
                                             std::vector<std::int32_t> mixed,
                                             const InputLayoutRequest& request) {
  const RangeTime time_of_one = request.alone ? time_alone : cost_of_range;
  const auto time = [&](const std::vector<std::int32_t>& begins) {
    return time_of(matrices, begins, request.late, time_of_one);
  };
  const std::uint64_t most = time(mixed) + request.cost;
  const auto fewest = static_cast<int>(std::max(mixed.size() - 1, matrices.size()));
  for (int cta_ranges = fewest; cta_ranges <= request.ctas; ++cta_ranges) {
    std::vector<std::int32_t> apart = partition_apart(matrices, cta_ranges, time_of_one);
    if (time(apart) <= most) return apart;
  }
  return mixed;
}

std::vector<std::int32_t> partition_k_splits(std::int32_t n_tiles, int ctas) {
  const NTileCosts costs[] = {{n_tiles, 1}};
  std::vector<std::int32_t> begins =
      partition_n_tiles(costs, fewest_cta_ranges(costs, std::max(ctas / 2, 1)));
  const std::size_t cta_ranges = begins.size() - 1;
  for (std::size_t i = 1; i <= cta_ranges; ++i) begins.push_back(n_tiles + begins[i]);
  return begins;
}

}  // namespace bl::cuda
