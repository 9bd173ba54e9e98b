#include "backend/cuda/prefetch/weight_prefetch.h"

#include <algorithm>
#include <vector>

#include "backend/cuda/weights/cuda_matrix.h"

namespace bl::cuda {
namespace {

// Of a strip's codes, in bytes: about what the ring asks for before the row is there; what is worth
// being asked for by the first of two products or beside keys, by the second of two, and by one
// alone. More of it gained nothing (bench/ladder/exl2_gemv).
constexpr std::int64_t kOfRing = 8 << 10;
constexpr std::int64_t kOfFirst = 4 << 10;
constexpr std::int64_t kOfOther = 8 << 10;
// Of all strips together: what memory brings meanwhile.
constexpr std::int64_t kMostOfFirst = 8 << 20;
constexpr std::int64_t kMostOfOther = 16 << 20;
constexpr std::int64_t kAligned = 16;  // of cp.async.bulk

struct Wanted {
  std::int64_t from = 0;
  std::int64_t bytes = 0;
  std::int64_t most = 0;
};

Wanted wanted_by(WeightsAsker asker) {
  switch (asker) {
    case WeightsAsker::kQueries:
    case WeightsAsker::kBesideKeys:
      return {kOfRing, kOfFirst, kMostOfFirst};
    case WeightsAsker::kSecond:
      return {kOfRing + kOfFirst, kOfOther, kMostOfOther};
    default:
      return {kOfRing, kOfOther, kMostOfOther};
  }
}

// A matrix's strips, or a part of each of them; in bytes.
struct StripRange {
  const CodeMatrixView* view = nullptr;
  std::int64_t first = 0;
  std::int64_t bytes = 0;
};

// Of whole strips, or of parts: the last one first, since each reaches to where the one behind
// begins.
void add_ranges(const CodeWeights& weights, std::vector<StripRange>& ranges) {
  const CodeMatrixView& view = weights.view;
  std::int64_t end = view.strip_bytes;
  if (weights.parts.empty()) ranges.push_back({&view, 0, end});
  for (auto part = weights.parts.rbegin(); part != weights.parts.rend(); ++part) {
    const std::int64_t first = part->view.codes - view.codes;
    ranges.push_back({&view, first, end - first});
    end = first;
  }
}

WeightsAhead::Source source_of(const StripRange& range, const Wanted& wanted) {
  const CodeMatrixView& view = *range.view;
  WeightsAhead::Source source;
  source.strips = view.strips;
  source.strip_bytes = static_cast<std::uint32_t>(view.strip_bytes);
  const std::int64_t left = std::max<std::int64_t>(range.bytes - wanted.from, 0);
  source.codes = view.codes + range.first + std::min(wanted.from, range.bytes);
  source.code_bytes =
      static_cast<std::uint32_t>(std::min(wanted.bytes, left) / kAligned * kAligned);
  source.scales = view.scales;
  source.scale_bytes = static_cast<std::uint32_t>(scale_stride(view.kind, view.groups));
  return source;
}

}  // namespace

WeightsAhead weights_ahead_of(std::span<const CodeWeights* const> next, WeightsAsker asker) {
  std::vector<StripRange> ranges;
  for (const CodeWeights* weights : next) {
    if (weights != nullptr) add_ranges(*weights, ranges);
  }
  std::int64_t strips = 0;
  for (const StripRange& range : ranges) strips += range.view->strips;
  Wanted wanted = wanted_by(asker);
  if (strips > 0) wanted.bytes = std::min(wanted.bytes, wanted.most / strips);
  WeightsAhead ahead;
  for (const StripRange& range : ranges) {
    const WeightsAhead::Source source = source_of(range, wanted);
    if (source.code_bytes > 0 && ahead.count < kMaxMatrices) ahead.sources[ahead.count++] = source;
  }
  return ahead;
}

}  // namespace bl::cuda
