#include "sample/row_select.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "base/check.h"

namespace bl {
namespace {

bool better(const LogitEntry& a, const LogitEntry& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

bool before(const Ranked& a, const Ranked& b) {
  return a.key != b.key ? a.key < b.key : a.id < b.id;
}

// The digits of a key for a radix sort, most significant first.
struct Digit {
  int shift;
  std::uint32_t mask;
  std::uint32_t of(std::uint32_t key) const { return (key >> shift) & mask; }
};
constexpr std::array<Digit, 3> kDigits{{{21, 0x7ff}, {10, 0x7ff}, {0, 0x3ff}}};
constexpr std::size_t kBuckets = 0x800;

// A value that at least k logits of the row exceed: the k-th largest of the maxima of runs, minus
// one ulp. Returns −∞ if the row has too few runs for that to pay off.
float first_bar(std::span<const float> row, std::size_t k) {
  constexpr std::size_t kMostRuns = 512;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const std::size_t length = std::max<std::size_t>(256, row.size() / (2 * k) / kBlock * kBlock);
  const std::size_t runs = row.size() / std::min<std::size_t>(length, 4 * kRun);
  if (runs < 2 * k || runs > kMostRuns) return kNone;
  std::array<float, kMostRuns> tops;
  const RowKernels& kernels = row_kernels();
  const std::size_t run = row.size() / runs;
  for (std::size_t i = 0; i < runs; ++i) tops[i] = kernels.largest(row.data() + i * run, run);
  const auto kth = tops.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(tops.begin(), kth, tops.begin() + static_cast<std::ptrdiff_t>(runs),
                   std::greater<>());
  return std::nextafter(*kth, kNone);
}

}  // namespace

void select_top(std::span<const float> row, std::size_t k, std::vector<LogitEntry>& out) {
  out.clear();
  if (k == 0) return;
  // Collect every logit above the bar. Whenever there are more than twice as many as needed, keep
  // the best k and raise the bar to the k-th. A later (higher) id with an equal logit never
  // displaces a kept one.
  const std::size_t room = 2 * k + 256;
  float bar = first_bar(row, k);
  const auto select = [&] {
    if (out.size() <= k) return;
    const auto last = out.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(out.begin(), last, out.end(), better);
    bar = last->logit;
    out.resize(k);
  };
  for_each_above(row, bar, [&](std::int32_t id, float logit) {
    out.push_back({logit, id});
    if (out.size() >= room) select();
  });
  select();
}

MassCut cut_by_mass(std::vector<Ranked>& items, double wanted) {
  constexpr std::size_t kFew = 256;
  BL_CHECK(!items.empty());
  // If the wanted mass rounds to 0, the first item is still kept.
  wanted = std::max(wanted, std::numeric_limits<double>::denorm_min());
  std::array<double, kBuckets> mass;
  std::size_t count = items.size();
  double inside = 0;  // mass before the first `count` items; below `wanted`
  for (const Digit& digit : kDigits) {
    if (count <= kFew) break;
    mass.fill(0);
    for (std::size_t i = 0; i < count; ++i) {
      mass[digit.of(items[i].key)] += static_cast<double>(items[i].weight);
    }
    std::size_t bucket = 0;
    while (bucket < kBuckets && inside + mass[bucket] < wanted) inside += mass[bucket++];
    if (bucket == kBuckets) {  // all items are wanted, if only by rounding
      const auto end = items.begin() + static_cast<std::ptrdiff_t>(count);
      const auto last = std::max_element(items.begin(), end, before);
      return {last->key, last->id};
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      items[kept] = items[i];
      kept += digit.of(items[i].key) == bucket ? 1 : 0;
    }
    count = kept;
  }
  const auto end = items.begin() + static_cast<std::ptrdiff_t>(count);
  if (!std::is_sorted(items.begin(), end, before)) std::sort(items.begin(), end, before);
  for (auto it = items.begin(); it != end; ++it) {
    inside += static_cast<double>(it->weight);
    if (inside >= wanted) return {it->key, it->id};
  }
  return {items[count - 1].key, items[count - 1].id};
}

void sort_ranked(std::vector<Ranked>& items, std::vector<Ranked>& swap) {
  constexpr std::size_t kFew = 2048;
  if (items.size() <= kFew) {
    std::sort(items.begin(), items.end(), before);
    return;
  }
  swap.resize(items.size());
  for (auto digit = kDigits.rbegin(); digit != kDigits.rend(); ++digit) {
    std::array<std::size_t, kBuckets> begin{};
    for (const Ranked& item : items) ++begin[digit->of(item.key)];
    std::size_t total = 0;
    for (std::size_t& slot : begin) total += std::exchange(slot, total);
    for (const Ranked& item : items) swap[begin[digit->of(item.key)]++] = item;
    items.swap(swap);
  }
}

}  // namespace bl
