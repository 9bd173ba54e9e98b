// Pure host arithmetic, tested without a card.

#include <algorithm>

#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "backend/cuda/gemm/partition/partition_cache.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

std::uint64_t cost_of_part(const NTileCosts& k_split) {
  return k_split.cost * static_cast<std::uint64_t>(k_split.n_tiles);
}

}  // namespace

std::vector<std::int32_t> partition_n_tiles(std::span<const NTileCosts> matrices, int ctas) {
  std::uint64_t total = 0;
  std::int32_t n_tiles = 0;
  for (const NTileCosts& matrix : matrices) {
    BL_CHECK(matrix.n_tiles > 0 && matrix.cost > 0);
    total += cost_of_part(matrix);
    n_tiles += matrix.n_tiles;
  }
  const auto cta_ranges = static_cast<std::uint64_t>(std::min<std::int64_t>(ctas, n_tiles));
  std::vector<std::int32_t> begins{0};
  std::size_t at = 0;             // the matrix where the next share begins
  std::uint64_t cost_before = 0;  // of that matrix
  std::int32_t n_tiles_before = 0;
  for (std::uint64_t s = 1; s < cta_ranges; ++s) {
    const std::uint64_t target = (total * s + cta_ranges - 1) / cta_ranges;
    while (at + 1 < matrices.size() && cost_before + cost_of_part(matrices[at]) <= target) {
      cost_before += cost_of_part(matrices[at]);
      n_tiles_before += matrices[at++].n_tiles;
    }
    const std::uint64_t partial = target - std::min(target, cost_before);
    const auto inside = static_cast<std::int32_t>(partial / matrices[at].cost);
    const std::int32_t wanted = n_tiles_before + std::min(inside, matrices[at].n_tiles);
    // Costs may differ so much that a share would be empty: each gets a strip at least.
    const auto left = static_cast<std::int32_t>(cta_ranges - s);
    begins.push_back(std::clamp(wanted, begins.back() + 1, n_tiles - left));
  }
  begins.push_back(n_tiles);
  return begins;
}

CtaRangeBegins::CtaRangeBegins(const CtaRanges& cta_ranges) {
  if (cta_ranges.ctas <= kMost) {
    std::copy(cta_ranges.host_begins.begin(), cta_ranges.host_begins.end(), near);
  } else {
    far = cta_ranges.begins;
  }
}

namespace {

// f(part) for each matrix that has any of the strips [begin, end) of all.
template <class F>
void for_each_part(std::span<const NTileCosts> matrices, std::int32_t begin, std::int32_t end,
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
  for_each_part(matrices, begin, end, [&](const NTileCosts& k_split) { slice.push_back(k_split); });
  return slice;
}

// The time that a CTA of the product of one token takes, which multiplies kStageNTiles strips of a
// matrix at once: one group more is as long as one strip more, and a single strip as two
// (instructions of a pair of chunks, bench/ladder/exl2_gemv).
std::uint64_t time_alone(const NTileCosts& k_split) {
  const std::int32_t partial = k_split.n_tiles % kStageNTiles;
  const std::int32_t of_rest = partial == 0 ? 0 : std::max(partial, 2) + 1;
  return cost_of_part(
      {k_split.n_tiles / kStageNTiles * (kStageNTiles + 1) + of_rest, k_split.cost});
}

using PartTime = std::uint64_t (*)(const NTileCosts&);  // of a share's part of one matrix

// The longest of shares [first, last).
std::uint64_t longest_of(std::span<const NTileCosts> matrices, std::span<const std::int32_t> begins,
                         std::size_t first, std::size_t last, PartTime time = cost_of_part) {
  std::uint64_t most = 0;
  for (std::size_t i = first; i < last; ++i) {
    std::uint64_t all = 0;
    for_each_part(matrices, begins[i], begins[i + 1],
                  [&](const NTileCosts& k_split) { all += time(k_split); });
    most = std::max(most, all);
  }
  return most;
}

// When the launch ends.
std::uint64_t time_of(std::span<const NTileCosts> matrices, std::span<const std::int32_t> begins,
                      const LateCtas& late, PartTime time = cost_of_part) {
  const std::size_t cta_ranges = begins.size() - 1;
  const std::size_t early = cta_ranges - std::min(static_cast<std::size_t>(late.count), cta_ranges);
  std::uint64_t longest = longest_of(matrices, begins, 0, early, time);
  if (early < cta_ranges) {
    longest = std::max(longest, longest_of(matrices, begins, early, cta_ranges, time) + late.cost);
  }
  return longest;
}

// Shares none of which has strips of two matrices: the matrix whose shares take longest gets one
// more as long as there are any. `ctas`: at least as many as matrices.
std::vector<std::int32_t> partition_apart(std::span<const NTileCosts> matrices, int ctas,
                                          PartTime time) {
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
  const PartTime of_k_split = request.alone ? time_alone : cost_of_part;
  const auto time = [&](const std::vector<std::int32_t>& begins) {
    return time_of(matrices, begins, request.late, of_k_split);
  };
  const std::uint64_t most = time(mixed) + request.cost;
  const auto fewest = static_cast<int>(std::max(mixed.size() - 1, matrices.size()));
  for (int cta_ranges = fewest; cta_ranges <= request.ctas; ++cta_ranges) {
    std::vector<std::int32_t> apart = partition_apart(matrices, cta_ranges, of_k_split);
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
