#include "backend/cuda/device/piece_runs.h"

#include <cstdint>
#include <optional>

namespace bl::cuda {
namespace {

// Returns the distance from address `a` to address `b`, if a copy can have it as its pitch: rows of
// `bytes` bytes must not overlap, and it must not exceed `most`.
std::optional<std::size_t> pitch_of(const void* a, const void* b, std::size_t bytes,
                                    std::size_t most) {
  const auto from = reinterpret_cast<std::uintptr_t>(a);
  const auto to = reinterpret_cast<std::uintptr_t>(b);
  if (to < from || to - from < bytes || to - from > most) return std::nullopt;
  return to - from;
}

}  // namespace

std::vector<PieceRun> runs_of(std::span<const CopyPiece> pieces, std::size_t most_pitch) {
  std::vector<PieceRun> runs;
  const CopyPiece* last = nullptr;
  for (const CopyPiece& piece : pieces) {
    if (piece.bytes == 0) continue;
    if (last != nullptr && piece.bytes == last->bytes) {
      PieceRun& run = runs.back();
      const auto to = pitch_of(last->to, piece.to, piece.bytes, most_pitch);
      const auto from = pitch_of(last->from, piece.from, piece.bytes, most_pitch);
      if (to && from && (run.rows == 1 || (*to == run.to_pitch && *from == run.from_pitch))) {
        run.to_pitch = *to;
        run.from_pitch = *from;
        ++run.rows;
        last = &piece;
        continue;
      }
    }
    runs.push_back({.first = piece, .to_pitch = piece.bytes, .from_pitch = piece.bytes});
    last = &piece;
  }
  return runs;
}

}  // namespace bl::cuda
