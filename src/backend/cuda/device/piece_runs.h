#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "ops/backend.h"

namespace bl::cuda {

// A run of pieces of the same size whose sources, and whose destinations, lie at equal distances.
// It is one two-dimensional copy of `rows` rows, which takes the driver no longer to enqueue than
// the copy of a single piece.
struct PieceRun {
  CopyPiece first;
  std::size_t rows = 1;
  std::size_t to_pitch = 0;  // bytes between rows; the row's size where there is one row
  std::size_t from_pitch = 0;
};

// Joins neighbouring pieces into runs, in their order; empty pieces are dropped. `most_pitch` is
// the largest pitch of a two-dimensional copy (DeviceFacts::largest_pitch).
std::vector<PieceRun> runs_of(std::span<const CopyPiece> pieces, std::size_t most_pitch);

}  // namespace bl::cuda
