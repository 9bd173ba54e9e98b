#include "backend/cuda/prefetch/weight_prefetch.h"

#include <algorithm>
#include <vector>

#include "backend/cuda/weights/cuda_matrix.h"

namespace bl::cuda {
namespace {

// Bytes of an n_tile's codes. kOfRing: about what the reader's pipeline loads itself before its
// activations are there. Behind that, kOfFirst: what the first of two GEMMs, or one that also
// prefetches keys, should prefetch; kOfOther: the second of two, or a single one. More gained
// nothing (bench/ladder/gemv_i8.md).
constexpr std::int64_t kOfRing = 8 << 10;
constexpr std::int64_t kOfFirst = 4 << 10;
constexpr std::int64_t kOfOther = 8 << 10;
// Limits for all n_tiles together: what memory delivers meanwhile.
constexpr std::int64_t kMostOfFirst = 8 << 20;
constexpr std::int64_t kMostOfOther = 16 << 20;
constexpr std::int64_t kAligned = 16;  // required by cp.async.bulk.prefetch

struct Wanted {
  std::int64_t from = 0;
  std::int64_t bytes = 0;
  std::int64_t most = 0;
};

Wanted wanted_by(WeightPrefetchSite site) {
  switch (site) {
    case WeightPrefetchSite::kQueries:
    case WeightPrefetchSite::kBesideKeys:
      return {kOfRing, kOfFirst, kMostOfFirst};
    case WeightPrefetchSite::kSecond:
      return {kOfRing + kOfFirst, kOfOther, kMostOfOther};
    default:
      return {kOfRing, kOfOther, kMostOfOther};
  }
}

// The n_tiles of a matrix, or a range of bytes of each of them.
struct NTileSpan {
  const CodeMatrixView* view = nullptr;
  std::int64_t first = 0;
  std::int64_t bytes = 0;
};

// Adds whole n_tiles, or their k_splits: the last one first, since each ends where the one behind
// it begins.
void add_ranges(const CodeWeights& weights, std::vector<NTileSpan>& ranges) {
  const CodeMatrixView& view = weights.view;
  std::int64_t end = view.n_tile_bytes;
  if (weights.k_splits.empty()) ranges.push_back({&view, 0, end});
  for (auto k_split = weights.k_splits.rbegin(); k_split != weights.k_splits.rend(); ++k_split) {
    const std::int64_t first = k_split->view.codes - view.codes;
    ranges.push_back({&view, first, end - first});
    end = first;
  }
}

WeightPrefetch::Source source_of(const NTileSpan& range, const Wanted& wanted) {
  const CodeMatrixView& view = *range.view;
  WeightPrefetch::Source source;
  source.n_tiles = view.n_tiles;
  source.n_tile_bytes = static_cast<std::uint32_t>(view.n_tile_bytes);
  const std::int64_t left = std::max<std::int64_t>(range.bytes - wanted.from, 0);
  source.codes = view.codes + range.first + std::min(wanted.from, range.bytes);
  source.code_bytes =
      static_cast<std::uint32_t>(std::min(wanted.bytes, left) / kAligned * kAligned);
  source.scales = view.scales;
  source.scale_bytes = static_cast<std::uint32_t>(scale_stride(view.kind, view.groups));
  return source;
}

}  // namespace

WeightPrefetch plan_weight_prefetch(std::span<const CodeWeights* const> next,
                                    WeightPrefetchSite site) {
  std::vector<NTileSpan> ranges;
  for (const CodeWeights* weights : next) {
    if (weights != nullptr) add_ranges(*weights, ranges);
  }
  std::int64_t n_tiles = 0;
  for (const NTileSpan& range : ranges) n_tiles += range.view->n_tiles;
  Wanted wanted = wanted_by(site);
  if (n_tiles > 0) wanted.bytes = std::min(wanted.bytes, wanted.most / n_tiles);
  WeightPrefetch prefetch;
  for (const NTileSpan& range : ranges) {
    const WeightPrefetch::Source source = source_of(range, wanted);
    if (source.code_bytes > 0 && prefetch.count < kMaxMatrices)
      prefetch.sources[prefetch.count++] = source;
  }
  return prefetch;
}

}  // namespace bl::cuda
