#pragma once
// Which rates a model can have, and the one that fits into a limit.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "convert/planned_model.h"

namespace bl {

// Rates in thousandths of a bit, so that they have short names.
struct RateRange {
  double least = 0.0;  // every rate from here on can be reached
  double most = 0.0;   // from here on nothing changes
};

// In all functions `linears` are Converter::linears(): those without groups, which are those of the
// blocks, count for a rate; widths are 2 to 8, in groups of 32 to 128.
RateRange reachable_rates(std::span<const PlannedMatrix> linears);

// The linears as they are at the least rate.
std::vector<PlannedMatrix> cheapest_matrices(std::span<const PlannedMatrix> linears);

// About how many bytes the linears of the blocks take at a rate, before there is a plan.
std::uint64_t bytes_at(std::span<const PlannedMatrix> linears, double rate);

// A limit for what a quantized model needs.
struct SizeLimit {
  std::string what;  // for messages: "--target-size 5.2GiB"
  std::uint64_t bytes = 0;
  // The bytes that a model with these linears, all with groups, needs.
  std::function<std::uint64_t(std::span<const PlannedMatrix> matrices)> needed;
};

// Throws kInvalidArgument, with the bytes at both ends of the range, where no rate fits. Takes no
// measurement.
void check_limit(std::span<const PlannedMatrix> linears, const SizeLimit& limit);

// The largest rate of the range that fits. `planned` gives the linears with the groups that they
// have at a rate. Throws kInvalidArgument where none does.
double largest_rate(const RateRange& range, const SizeLimit& limit,
                    const std::function<std::vector<PlannedMatrix>(double rate)>& planned);

}  // namespace bl
