// Pure host arithmetic, tested without a card.

#include <algorithm>

#include "backend/cuda/product/product_plan.h"
#include "base/check.h"

namespace bl::cuda {

std::vector<std::int32_t> share_strips(std::span<const StripCosts> matrices, int ctas) {
  std::uint64_t total = 0;
  std::int32_t strips = 0;
  for (const StripCosts& matrix : matrices) {
    BL_CHECK(matrix.strips > 0 && matrix.cost > 0);
    total += matrix.cost * static_cast<std::uint64_t>(matrix.strips);
    strips += matrix.strips;
  }
  const auto shares = static_cast<std::uint64_t>(std::min<std::int64_t>(ctas, strips));
  std::vector<std::int32_t> begins{0};
  std::size_t at = 0;             // the matrix where the next share begins
  std::uint64_t cost_before = 0;  // of that matrix
  std::int32_t strips_before = 0;
  for (std::uint64_t s = 1; s < shares; ++s) {
    const std::uint64_t target = (total * s + shares - 1) / shares;
    const auto cost_of = [&](std::size_t m) {
      return matrices[m].cost * static_cast<std::uint64_t>(matrices[m].strips);
    };
    while (at + 1 < matrices.size() && cost_before + cost_of(at) <= target) {
      cost_before += cost_of(at);
      strips_before += matrices[at++].strips;
    }
    const std::uint64_t rest = target - std::min(target, cost_before);
    const auto inside = static_cast<std::int32_t>(rest / matrices[at].cost);
    const std::int32_t wanted = strips_before + std::min(inside, matrices[at].strips);
    // Costs may differ so much that a share would be empty: each gets a strip at least.
    const auto left = static_cast<std::int32_t>(shares - s);
    begins.push_back(std::clamp(wanted, begins.back() + 1, strips - left));
  }
  begins.push_back(strips);
  return begins;
}

ShareBegins::ShareBegins(const StripShares& shares) {
  if (shares.ctas <= kMost) {
    std::copy(shares.host_begins.begin(), shares.host_begins.end(), near);
  } else {
    far = shares.begins;
  }
}

int fewest_shares(std::span<const StripCosts> matrices, int ctas) {
  const auto longest = [&](int shares) {
    const std::vector<std::int32_t> begins = share_strips(matrices, shares);
    std::uint64_t most = 0;
    for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
      std::uint64_t cost = 0;
      std::int32_t before = 0;
      for (const StripCosts& matrix : matrices) {
        const std::int32_t end = before + matrix.strips;
        const std::int32_t from = std::max(begins[i], before);
        const std::int32_t to = std::min(begins[i + 1], end);
        if (to > from) cost += matrix.cost * static_cast<std::uint64_t>(to - from);
        before = end;
      }
      most = std::max(most, cost);
    }
    return most;
  };
  const std::uint64_t bound = longest(ctas);
  int fewest = ctas;
  for (int shares = ctas - 1; shares > ctas * 7 / 8; --shares) {
    if (longest(shares) <= bound) fewest = shares;
  }
  return fewest;
}

std::vector<std::int32_t> share_parts(std::int32_t strips, int ctas) {
  const StripCosts costs[] = {{strips, 1}};
  std::vector<std::int32_t> begins =
      share_strips(costs, fewest_shares(costs, std::max(ctas / 2, 1)));
  const std::size_t shares = begins.size() - 1;
  for (std::size_t i = 1; i <= shares; ++i) begins.push_back(strips + begins[i]);
  return begins;
}

}  // namespace bl::cuda
