// Pure host arithmetic, tested without a card.

#include <algorithm>
#include <numeric>

#include "backend/cuda/product_plan.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

// Costs before each chunk of a strip, and of a whole strip.
struct StripCosts {
  std::vector<std::uint64_t> before;
  std::uint64_t total = 0;
};

StripCosts costs_of(const MatrixShape& matrix) {
  StripCosts costs;
  for (const std::uint32_t cost : matrix.costs) {
    costs.before.push_back(costs.total);
    costs.total += cost;
  }
  return costs;
}

class Walk {
 public:
  explicit Walk(std::span<const MatrixShape> matrices) : matrices_(matrices) {
    for (const MatrixShape& matrix : matrices) {
      BL_CHECK(!matrix.costs.empty() && matrix.costs.size() <= 65535);
      costs_.push_back(costs_of(matrix));
      cost_before_.push_back(total_);
      strips_before_.push_back(strips_);
      total_ += costs_.back().total * static_cast<std::uint64_t>(matrix.strips);
      strips_ += matrix.strips;
      const auto heaviest = std::max_element(matrix.costs.begin(), matrix.costs.end());
      heaviest_ = std::max<std::uint64_t>(heaviest_, *heaviest);
    }
  }
  std::uint64_t total() const { return total_; }
  std::uint64_t heaviest() const { return heaviest_; }

  // The first chunk with at least `target` before it.
  ChunkCursor at(std::uint64_t target) const {
    ChunkCursor cursor;
    if (target >= total_) {
      cursor.matrix = static_cast<std::int16_t>(matrices_.size());
      cursor.strip = strips_;
      return cursor;
    }
    std::size_t m = 0;
    while (m + 1 < matrices_.size() && cost_before_[m + 1] <= target) ++m;
    const StripCosts& costs = costs_[m];
    std::uint64_t strip = (target - cost_before_[m]) / costs.total;
    const std::uint64_t rest = (target - cost_before_[m]) % costs.total;
    std::size_t chunk = static_cast<std::size_t>(
        std::lower_bound(costs.before.begin(), costs.before.end(), rest) - costs.before.begin());
    if (chunk == costs.before.size()) {
      chunk = 0;
      if (++strip == static_cast<std::uint64_t>(matrices_[m].strips)) {
        strip = 0;
        ++m;
      }
    }
    cursor.matrix = static_cast<std::int16_t>(m);
    cursor.chunk = static_cast<std::uint16_t>(chunk);
    cursor.strip =
        m < matrices_.size() ? strips_before_[m] + static_cast<std::int32_t>(strip) : strips_;
    return cursor;
  }

 private:
  std::span<const MatrixShape> matrices_;
  std::vector<StripCosts> costs_;
  std::vector<std::uint64_t> cost_before_;
  std::vector<std::int32_t> strips_before_;
  std::uint64_t total_ = 0;
  std::uint64_t heaviest_ = 1;
  std::int32_t strips_ = 0;
};

// The last strip that a share touches.
std::int32_t last_strip(const CtaShare& share) {
  const ChunkCursor& end = share.begin[kProductWarps];
  return end.chunk > 0 ? end.strip : end.strip - 1;
}

}  // namespace

std::vector<CtaShare> share_product(std::span<const MatrixShape> matrices, int ctas) {
  const Walk walk(matrices);
  // A share as large as the heaviest chunk is never empty.
  const auto count = static_cast<std::uint64_t>(std::max<std::uint64_t>(
      1,
      std::min<std::uint64_t>(static_cast<std::uint64_t>(ctas), walk.total() / walk.heaviest())));
  std::vector<CtaShare> shares(count);
  const std::uint64_t warps = count * kProductWarps;
  for (std::uint64_t w = 0; w <= warps; ++w) {
    const ChunkCursor cursor = walk.at((walk.total() * w + warps - 1) / warps);
    if (w < warps) shares[w / kProductWarps].begin[w % kProductWarps] = cursor;
    if (w % kProductWarps == 0 && w > 0)
      shares[w / kProductWarps - 1].begin[kProductWarps] = cursor;
  }
  for (std::size_t c = 0; c < shares.size(); ++c) {
    const std::int32_t ends[2] = {shares[c].begin[0].strip, last_strip(shares[c])};
    for (int e = 0; e < 2; ++e) {
      std::size_t first = c;
      std::size_t last = c;
      while (first > 0 && last_strip(shares[first - 1]) >= ends[e]) --first;
      while (last + 1 < shares.size() && shares[last + 1].begin[0].strip <= ends[e]) ++last;
      // The next share may begin with the strip's successor only if this strip has ended.
      shares[c].first_owner[e] = static_cast<std::int32_t>(first);
      shares[c].last_owner[e] = static_cast<std::int32_t>(last);
    }
  }
  return shares;
}

}  // namespace bl::cuda
