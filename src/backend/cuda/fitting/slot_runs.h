#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ops/fitting.h"

namespace bl::cuda {

// Slots that one launch rounds or sweeps; their errors of 32 columns fit into shared memory.
inline constexpr int kRunSlots = 128;

// Neighbouring slots of one group.
struct SlotRun {
  std::int64_t first = 0;  // slot of the matrix
  int slots = 0;           // up to kRunSlots
};

// A group and the runs that it is cut into.
struct GroupRuns {
  std::int64_t first = 0;  // slot of the matrix
  std::int64_t slots = 0;
  int bits = 0;
  std::vector<SlotRun> runs;
};

std::vector<GroupRuns> runs_of(std::span<const SlotGroup> groups);

// The slots of the largest group.
std::int64_t most_slots(std::span<const SlotGroup> groups);

// Bytes that rounding a matrix [in, out] takes on the card beside its wanted weights and Hessian.
// `group`: the slots of the largest group.
std::size_t rounding_bytes(std::int64_t in, std::int64_t out, std::int64_t group, bool sweeps);

// Columns of the errors that a sweep begins with that are multiplied by H at a time.
inline constexpr std::int64_t kErrorColumns = 4096;

}  // namespace bl::cuda
