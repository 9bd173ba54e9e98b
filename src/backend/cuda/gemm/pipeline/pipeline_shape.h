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
inline constexpr int kConsumerWarps = 15;
inline constexpr int kConsumerThreads = kConsumerWarps * 32;  // that multiply
inline constexpr int kMaxStages = 8;
inline constexpr int kFragmentBytes = 64;  // of a token and unit

// The ring of a launch, in bytes. Entries lie in it one behind the other, each as long as it must
// be: a piece of several strips, or several pieces joined where there are fewer strips.
struct PipelineShape {
  int bytes = 0;        // of entries, behind the headers; at least largest_load()
  int scale_room = 0;   // the most of a strip and piece
  int code_room = 0;    // the most of a strip and piece
  int tokens = 0;       // whose fragments travel along, or 0
  int most_joined = 1;  // pieces of a single strip

  static constexpr int kHeaderBytes = 48;
  static constexpr int kHeadersBytes = kMaxStages * kHeaderBytes;

  // Where codes and fragments may begin.
  BL_HD static constexpr int rounded(int bytes) { return (bytes + 127) / 128 * 128; }
  // Room for pieces of such a matrix too.
  void make_room(std::int32_t copy_block_bytes, std::int32_t copy_block_scale_bytes) {
    code_room = std::max(code_room, copy_block_bytes);
    scale_room = std::max(scale_room, copy_block_scale_bytes);
  }
  // Of so many strips, once all room is made and `tokens` and `most_joined` are known.
  int largest_load(int n_tiles) const {
    const int k_blocks = most_joined * kMaxCopyBlockSteps * static_cast<int>(sizeof(KBlock));
    return rounded(rounded(k_blocks + n_tiles * scale_room) + n_tiles * code_room +
                   tokens * kMaxCopyBlockSteps * kFragmentBytes);
  }
  // All of `space`, which holds the headers too.
  void fill(int space, int n_tiles) {
    bytes = (space - kHeadersBytes) / 128 * 128;
    BL_CHECK(bytes >= largest_load(n_tiles));
  }
};

}  // namespace bl::cuda
