#pragma once
// The CTA of a kernel whose weights pass through a shared-memory pipeline, and the pipeline's size.
// For kernels and host.

#include <algorithm>
#include <cstdint>

#include "backend/cuda/layout/code_matrix.h"
#include "base/check.h"
#include "base/host_device.h"

namespace bl::cuda {

// Warps of a CTA that multiply; one more, the producer warp, issues the copies.
inline constexpr int kConsumerWarps = 15;
inline constexpr int kConsumerThreads = kConsumerWarps * 32;
inline constexpr int kMaxStages = 8;
// Shared memory for the full and the empty barrier of every stage, so that what follows is aligned
// for bulk copies.
inline constexpr int kBarrierBytes = 128;
static_assert(2 * kMaxStages * sizeof(std::uint64_t) <= kBarrierBytes);
inline constexpr int kFragmentBytes = 64;  // activations of one token and k_step

// The pipeline of a launch, sizes in bytes. Its stages vary in length and lie one behind the other:
// a stage holds one copy_block of several n_tiles, or several joined copy_blocks where fewer
// n_tiles are left.
struct PipelineShape {
  int bytes = 0;       // room for stages, behind the headers; at least largest_load()
  int scale_room = 0;  // the most scales of one n_tile in a copy_block
  int code_room = 0;   // the most codes of one n_tile in a copy_block
  // The most bytes of one k_step's activations, of all tokens, that travel with the weights; or 0.
  int input_bytes = 0;
  int most_joined = 1;   // copy_blocks in a stage of a single n_tile
  int early_stages = 1;  // stages whose weights are copied before any activations

  static constexpr int kHeaderBytes = 48;
  static constexpr int kHeadersBytes = kMaxStages * kHeaderBytes;

  // Rounds up to where codes and fragments may begin.
  BL_HD static constexpr int rounded(int bytes) { return (bytes + 127) / 128 * 128; }
  // Makes room for the copy_blocks of one more matrix.
  void make_room(std::int32_t copy_block_bytes, std::int32_t copy_block_scale_bytes) {
    code_room = std::max(code_room, copy_block_bytes);
    scale_room = std::max(scale_room, copy_block_scale_bytes);
  }
  // Returns the longest stage of up to `n_tiles` n_tiles, once all rooms, `input_bytes` and
  // `most_joined` are set.
  int largest_load(int n_tiles) const {
    const int k_blocks = most_joined * kMaxCopyBlockSteps * static_cast<int>(sizeof(KBlock));
    return rounded(rounded(k_blocks + n_tiles * scale_room) + n_tiles * code_room +
                   most_joined * kMaxCopyBlockSteps * input_bytes);
  }
  // Uses all of `space` bytes, which hold the headers too.
  void fill(int space, int n_tiles) {
    bytes = (space - kHeadersBytes) / 128 * 128;
    BL_CHECK(bytes >= largest_load(n_tiles));
  }
};

}  // namespace bl::cuda
