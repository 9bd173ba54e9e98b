#include "ops/backend.h"

#include <cstring>

namespace bl {

void Backend::copy_pieces(std::span<const CopyPiece> pieces) {
  for (const CopyPiece& piece : pieces) std::memcpy(piece.to, piece.from, piece.bytes);
}

}  // namespace bl
