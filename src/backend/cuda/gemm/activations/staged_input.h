#pragma once
// HalfInput of a few tokens: what held_product() reads as the launch before left it, without one in
// between that makes activations ready. Rows are fragments as prepare() makes them. A token's note
// says what they are divided by, or how large the row is: then they are divided by kLeftScale, if
// that serves, and otherwise the reader makes them ready from the same row in F32.

#include <cstdint>

#include "base/host_device.h"
#include "ops/exec_context.h"
#include "ops/half_input.h"

namespace bl::cuda {

// Rows of zeros, and those whose largest value is within these bounds: binary16 holds them, a slot
// stored divided by 16 too, and its smallest step is 2^-13 of the largest value at most.
inline constexpr float kLeftScale = 0.25f;
inline constexpr float kSmallestLeft = 0x1p-9f;
inline constexpr float kLargestLeft = 0x1p13f;

// Notes are the largest |x| of a row, or a scale with a minus before it.
BL_HD constexpr float note_of_scale(float scale) { return -scale; }
BL_HD constexpr bool is_scale(float note) { return note < 0.0f; }
BL_HD constexpr bool left_serves(float note) {
  return is_scale(note) || note == 0.0f || (note >= kSmallestLeft && note < kLargestLeft);
}

inline constexpr int kLeftTile = 16;  // tokens of one launch of the product

// What a kernel needs to leave it.
struct LeftInput {
  std::uint16_t* fragments = nullptr;  // binary16; null: nothing is left
  float* notes = nullptr;              // [tokens]
  const std::uint16_t* place_of_channel = nullptr;
  std::int32_t units = 0;
  std::int32_t tokens = 0;
};

LeftInput left_input_of(const HalfInput& half);

// Whether a HalfInput of a step is of this kind, and not of many_rows_matmul().
bool is_left_input(const ExecContext& ctx, const HalfInput& half);

// Width of the HalfInput of `reader`; 0 where held_product() does not multiply it.
std::int64_t left_input_width(const ExecContext& ctx, const PackedMatrix& reader,
                              std::int64_t tokens);

// Leaves rows of x, F32 [tokens, in].
void prepare_left(ExecContext& ctx, const TensorView& x, const HalfInput& half);

}  // namespace bl::cuda
