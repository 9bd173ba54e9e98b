#include "convert/rate_choice.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/terminal.h"
#include "convert/measured_groups.h"

namespace bl {
namespace {

constexpr double kSteps = 1000.0;  // of a bit
// The cheapest and the dearest group that allocation chooses from.
constexpr SlotGroup kCheapest{std::ranges::min(kMeasuredWidths), kLargestGroup};
constexpr SlotGroup kDearest{std::ranges::max(kMeasuredWidths), kSmallestGroup};

double weights_of(std::span<const PlannedMatrix> linears) {
  double weights = 0.0;
  for (const PlannedMatrix& linear : linears) {
    if (!linear.groups.empty()) continue;
    weights += static_cast<double>(linear.in) * static_cast<double>(linear.out);
  }
  return weights;
}

// The linears with such groups where they have none.
std::vector<PlannedMatrix> with_groups(std::span<const PlannedMatrix> linears,
                                       const SlotGroup& group) {
  std::vector<PlannedMatrix> matrices(linears.begin(), linears.end());
  for (PlannedMatrix& matrix : matrices) {
    if (!matrix.groups.empty()) continue;
    matrix.groups = uniform_groups(group.bits, group.slots, matrix.in);
  }
  return matrices;
}

double average_bits(std::span<const PlannedMatrix> linears, const SlotGroup& group) {
  double bits = 0.0;
  for (const PlannedMatrix& linear : linears) {
    if (!linear.groups.empty()) continue;
    const GroupList groups = uniform_groups(group.bits, group.slots, linear.in);
    bits += static_cast<double>(stored_bits(groups, linear.in, linear.out));
  }
  return std::ceil(bits / weights_of(linears) * kSteps) / kSteps;
}

std::int64_t steps_of(double rate) { return std::llround(rate * kSteps); }

}  // namespace

RateRange reachable_rates(std::span<const PlannedMatrix> linears) {
  return {average_bits(linears, kCheapest), average_bits(linears, kDearest)};
}

std::vector<PlannedMatrix> cheapest_matrices(std::span<const PlannedMatrix> linears) {
  return with_groups(linears, kCheapest);
}

std::uint64_t bytes_at(std::span<const PlannedMatrix> linears, double rate) {
  return static_cast<std::uint64_t>(rate * weights_of(linears) / 8.0);
}

void check_limit(std::span<const PlannedMatrix> linears, const SizeLimit& limit) {
  const std::uint64_t least = limit.needed(cheapest_matrices(linears));
  if (least <= limit.bytes) return;
  const std::uint64_t most = limit.needed(with_groups(linears, kDearest));
  const RateRange range = reachable_rates(linears);
  const auto text = [](std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  fail(ErrorCode::kInvalidArgument,
       "{} is too small: this model needs from {} bytes ({}) at {} bits per weight to {} bytes "
       "({}) at {}",
       limit.what, least, text(least), range.least, most, text(most), range.most);
}

double largest_rate(const RateRange& range, const SizeLimit& limit,
                    const std::function<std::vector<PlannedMatrix>(double rate)>& planned) {
  const auto needed = [&](std::int64_t steps) {
    return limit.needed(planned(static_cast<double>(steps) / kSteps));
  };
  std::int64_t low = steps_of(range.least), high = steps_of(range.most);
  if (needed(low) > limit.bytes) {
    fail(ErrorCode::kInvalidArgument,
         "{} is too small: this model needs {} bytes at {} bits per "
         "weight and {} at {}",
         limit.what, needed(low), range.least, needed(high), range.most);
  }
  if (needed(high) <= limit.bytes) return range.most;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (needed(middle) <= limit.bytes ? low : high) = middle;
  }
  return static_cast<double>(low) / kSteps;
}

}  // namespace bl
