#pragma once
// What the two phases of Rounding (GPTQ and coordinate descent) share.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "convert/rounding.h"
#include "convert/scale_search.h"

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
std::vector<SlotBlock> slot_blocks(const GroupList& groups);

// A stripe of columns, worked on by one thread.
struct ColumnPanel {
  std::int64_t first = 0;
  std::int64_t columns = 0;
};

struct RoundingState {
  RoundingState(const GroupList& groups, const OrderedHessian& hessian, std::int64_t out);

  std::uint8_t* codes(std::int64_t slot) { return matrix.codes.data() + slot * matrix.out; }
  std::uint8_t* scale_codes(std::size_t group) {
    return matrix.scale_codes.data() + static_cast<std::int64_t>(group) * matrix.out;
  }
  template <class F>
  void for_panels(Products& products, const F& body) {
    products.parallel(matrix.out, kPanelColumns, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; c += kPanelColumns) {
        body(ColumnPanel{c, std::min(kPanelColumns, end - c)});
      }
    });
  }

  RoundedMatrix matrix;
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
