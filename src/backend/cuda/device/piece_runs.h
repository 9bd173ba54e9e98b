#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "ops/backend.h"

namespace bl::cuda {

// Pieces of one size, each so many bytes behind the one before on either side: one copy of `rows`
// rows for the driver, which takes as long to ask for as one piece.
struct PieceRun {
  CopyPiece first;
  std::size_t rows = 1;
  std::size_t to_pitch = 0;  // of a single row, its bytes
  std::size_t from_pitch = 0;
};

// All pieces, in their order, in as few runs as that gives. `most_pitch`: that a copy may have.
std::vector<PieceRun> runs_of(std::span<const CopyPiece> pieces, std::size_t most_pitch);

}  // namespace bl::cuda
