// Pure host arithmetic, tested without a card.

#include <algorithm>

#include "backend/cuda/gemm/partition/partition_cache.h"
#include "backend/cuda/gemm/gemv_i8/gemv_i8_plan.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

std::uint64_t cost_of_part(const StripCosts& part) {
  return part.cost * static_cast<std::uint64_t>(part.strips);
}

}  // namespace

std::vector<std::int32_t> share_strips(std::span<const StripCosts> matrices, int ctas) {
  std::uint64_t total = 0;
  std::int32_t strips = 0;
  for (const StripCosts& matrix : matrices) {
    BL_CHECK(matrix.strips > 0 && matrix.cost > 0);
    total += cost_of_part(matrix);
    strips += matrix.strips;
  }
  const auto shares = static_cast<std::uint64_t>(std::min<std::int64_t>(ctas, strips));
  std::vector<std::int32_t> begins{0};
  std::size_t at = 0;             // the matrix where the next share begins
  std::uint64_t cost_before = 0;  // of that matrix
  std::int32_t strips_before = 0;
  for (std::uint64_t s = 1; s < shares; ++s) {
    const std::uint64_t target = (total * s + shares - 1) / shares;
    while (at + 1 < matrices.size() && cost_before + cost_of_part(matrices[at]) <= target) {
      cost_before += cost_of_part(matrices[at]);
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

namespace {

// f(part) for each matrix that has any of the strips [begin, end) of all.
template <class F>
void for_each_part(std::span<const StripCosts> matrices, std::int32_t begin, std::int32_t end,
                   const F& f) {
  std::int32_t before = 0;
  for (const StripCosts& matrix : matrices) {
    const std::int32_t from = std::max(begin, before);
    const std::int32_t to = std::min(end, before + matrix.strips);
    if (to > from) f(StripCosts{to - from, matrix.cost});
    before += matrix.strips;
  }
}

std::vector<StripCosts> slice_strips(std::span<const StripCosts> matrices, std::int32_t begin,
                                     std::int32_t end) {
  std::vector<StripCosts> slice;
  for_each_part(matrices, begin, end, [&](const StripCosts& part) { slice.push_back(part); });
  return slice;
}

// The time that a CTA of the product of one token takes, which multiplies kEntryStrips strips of a
// matrix at once: one group more is as long as one strip more, and a single strip as two
// (instructions of a pair of chunks, bench/ladder/exl2_gemv).
std::uint64_t time_alone(const StripCosts& part) {
  const std::int32_t rest = part.strips % kEntryStrips;
  const std::int32_t of_rest = rest == 0 ? 0 : std::max(rest, 2) + 1;
  return cost_of_part({part.strips / kEntryStrips * (kEntryStrips + 1) + of_rest, part.cost});
}

using PartTime = std::uint64_t (*)(const StripCosts&);  // of a share's part of one matrix

// The longest of shares [first, last).
std::uint64_t longest_of(std::span<const StripCosts> matrices, std::span<const std::int32_t> begins,
                         std::size_t first, std::size_t last, PartTime time = cost_of_part) {
  std::uint64_t most = 0;
  for (std::size_t i = first; i < last; ++i) {
    std::uint64_t all = 0;
    for_each_part(matrices, begins[i], begins[i + 1],
                  [&](const StripCosts& part) { all += time(part); });
    most = std::max(most, all);
  }
  return most;
}

// When the launch ends.
std::uint64_t time_of(std::span<const StripCosts> matrices, std::span<const std::int32_t> begins,
                      const LateCtas& late, PartTime time = cost_of_part) {
  const std::size_t shares = begins.size() - 1;
  const std::size_t early = shares - std::min(static_cast<std::size_t>(late.count), shares);
  std::uint64_t longest = longest_of(matrices, begins, 0, early, time);
  if (early < shares) {
    longest = std::max(longest, longest_of(matrices, begins, early, shares, time) + late.cost);
  }
  return longest;
}

// Shares none of which has strips of two matrices: the matrix whose shares take longest gets one
// more as long as there are any. `ctas`: at least as many as matrices.
std::vector<std::int32_t> share_apart(std::span<const StripCosts> matrices, int ctas,
                                      PartTime time) {
  std::vector<std::int32_t> shares(matrices.size(), 1);
  const auto time_of = [&](std::size_t m) {
    return time({(matrices[m].strips + shares[m] - 1) / shares[m], matrices[m].cost});
  };
  for (auto used = static_cast<int>(matrices.size()); used < ctas; ++used) {
    std::size_t slowest = 0;
    for (std::size_t m = 1; m < matrices.size(); ++m) {
      if (time_of(m) > time_of(slowest)) slowest = m;
    }
    if (shares[slowest] == matrices[slowest].strips) break;
    ++shares[slowest];
  }
  std::vector<std::int32_t> begins{0};
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    const std::int32_t before = begins.back();
    for (const std::int32_t at : share_strips(matrices.subspan(m, 1), shares[m])) {
      if (at > 0) begins.push_back(before + at);
    }
  }
  return begins;
}

}  // namespace

std::vector<std::int32_t> share_strips(std::span<const StripCosts> matrices, int ctas,
                                       const LateCtas& late) {
  std::vector<std::int32_t> best = share_strips(matrices, ctas);
  const int shares = static_cast<int>(best.size()) - 1;
  if (late.count <= 0 || late.count >= shares) return best;
  const auto early = static_cast<std::size_t>(shares - late.count);
  std::uint64_t least = time_of(matrices, best, late);
  const std::int32_t strips = best.back();
  for (std::int32_t border = best[early] + 1; border <= strips - late.count; ++border) {
    std::vector<std::int32_t> begins =
        share_strips(slice_strips(matrices, 0, border), static_cast<int>(early));
    if (longest_of(matrices, begins, 0, early) >= least) break;
    begins.pop_back();
    for (const std::int32_t at : share_strips(slice_strips(matrices, border, strips), late.count)) {
      begins.push_back(border + at);
    }
    const std::uint64_t time = time_of(matrices, begins, late);
    if (time >= least) continue;
    least = time;
    best = std::move(begins);
  }
  return best;
}

int fewest_shares(std::span<const StripCosts> matrices, int ctas) {
  const auto longest = [&](int shares) {
    const std::vector<std::int32_t> begins = share_strips(matrices, shares);
    return longest_of(matrices, begins, 0, begins.size() - 1);
  };
  const std::uint64_t bound = longest(ctas);
  int fewest = ctas;
  for (int shares = ctas - 1; shares > ctas * 7 / 8; --shares) {
    if (longest(shares) <= bound) fewest = shares;
  }
  return fewest;
}

std::vector<std::int32_t> share_alone(std::span<const StripCosts> matrices, int ctas) {
  std::vector<std::int32_t> mixed = share_strips(matrices, fewest_shares(matrices, ctas));
  const auto shares = static_cast<int>(mixed.size()) - 1;
  if (matrices.size() == 1 || shares < static_cast<int>(matrices.size())) return mixed;
  std::vector<std::int32_t> apart = share_apart(matrices, shares, time_alone);
  const auto time = [&](const std::vector<std::int32_t>& begins) {
    return time_of(matrices, begins, {}, time_alone);
  };
  return time(apart) < time(mixed) ? apart : mixed;
}

std::vector<std::int32_t> share_inputs(std::span<const StripCosts> matrices,
                                       std::vector<std::int32_t> mixed, const InputWish& wish) {
  const PartTime of_part = wish.alone ? time_alone : cost_of_part;
  const auto time = [&](const std::vector<std::int32_t>& begins) {
    return time_of(matrices, begins, wish.late, of_part);
  };
  const std::uint64_t most = time(mixed) + wish.cost;
  const auto fewest = static_cast<int>(std::max(mixed.size() - 1, matrices.size()));
  for (int shares = fewest; shares <= wish.ctas; ++shares) {
    std::vector<std::int32_t> apart = share_apart(matrices, shares, of_part);
    if (time(apart) <= most) return apart;
  }
  return mixed;
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
