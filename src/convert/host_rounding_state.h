#pragma once
// What the two phases of HostRounding (GPTQ and coordinate descent) share.

#include <cstdint>
#include <vector>

#include "convert/group_grids.h"
#include "ops/fitting.h"

namespace bl {

// Slots that are updated together: the rest of the matrix is corrected by one GEMM per block.
inline constexpr std::int64_t kBlockSlots = 128;

// A run of whole groups, about kBlockSlots slots.
struct SlotBlock {
  std::size_t first_group = 0;
  std::size_t end_group = 0;
  std::int64_t first_slot = 0;
  std::int64_t slots = 0;
};
std::vector<SlotBlock> slot_blocks(std::span<const SlotGroup> groups);

struct RoundingState {
  RoundingState(const RoundArgs& args, GroupGrids& scales);

  std::uint8_t* codes(std::int64_t slot) { return all_codes.data() + slot * out; }

  GroupGrids& grids;
  std::span<const SlotGroup> groups;
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::vector<std::uint8_t> all_codes;  // [in, out]
  std::vector<SlotBlock> blocks;
  Tensor values;  // F32 [in, out]: the decoded weights
  Tensor work;  // F32 [in, out]: weights with error feedback (GPTQ); H · (values − wanted) (sweeps)
  Tensor step;  // F32 [out, block slots]: what a block changed, transposed, for the GEMM
  // [panels, in] of slot errors, so that their sum has one order.
  std::vector<double> panel_errors;
};

// The view [out, slots] of state.step for a block.
TensorView step_of(RoundingState& state, const SlotBlock& block);

}  // namespace bl
