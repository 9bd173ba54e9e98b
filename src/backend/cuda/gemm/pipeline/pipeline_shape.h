#pragma once
// A CTA of products that get their weights by way of a ring, and how much room the ring has: for
// kernels and host alike.

#include <algorithm>
#include <cstdint>

#include "backend/cuda/layout/code_matrix.h"
#include "base/check.h"
#include "base/host_device.h"

namespace bl::cuda {

// Of a CTA, that multiply; one more issues the copies.
inline constexpr int kProductWarps = 15;
inline constexpr int kProductThreads = kProductWarps * 32;  // that multiply
inline constexpr int kMaxRingSlots = 8;
inline constexpr int kFragmentBytes = 64;  // of a token and unit

// The ring of a launch, in bytes. Entries lie in it one behind the other, each as long as it must
// be: a piece of several strips, or several pieces joined where there are fewer strips.
struct RingShape {
  int bytes = 0;        // of entries, behind the headers; at least largest_entry()
  int scale_room = 0;   // the most of a strip and piece
  int code_room = 0;    // the most of a strip and piece
  int tokens = 0;       // whose fragments travel along, or 0
  int most_joined = 1;  // pieces of a single strip

  static constexpr int kHeaderBytes = 48;
  static constexpr int kHeadersBytes = kMaxRingSlots * kHeaderBytes;

  // Where codes and fragments may begin.
  BL_HD static constexpr int rounded(int bytes) { return (bytes + 127) / 128 * 128; }
  // Room for pieces of such a matrix too.
  void make_room(std::int32_t piece_bytes, std::int32_t piece_scale_bytes) {
    code_room = std::max(code_room, piece_bytes);
    scale_room = std::max(scale_room, piece_scale_bytes);
  }
  // Of so many strips, once all room is made and `tokens` and `most_joined` are known.
  int largest_entry(int strips) const {
    const int chunks = most_joined * kMaxPieceUnits * static_cast<int>(sizeof(Chunk));
    return rounded(rounded(chunks + strips * scale_room) + strips * code_room +
                   tokens * kMaxPieceUnits * kFragmentBytes);
  }
  // All of `space`, which holds the headers too.
  void fill(int space, int strips) {
    bytes = (space - kHeadersBytes) / 128 * 128;
    BL_CHECK(bytes >= largest_entry(strips));
  }
};

}  // namespace bl::cuda
