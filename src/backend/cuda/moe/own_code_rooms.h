#pragma once
// The shared memory of a CTA of expert_token_warps.cu, in which every warp has a room for the codes
// that it copies itself. Host code, tested without a card.

#include <cstddef>
#include <optional>

#include "backend/cuda/gemm/pipeline/pipeline_shape.h"
#include "backend/cuda/moe/expert_limbs.h"

namespace bl::cuda {

inline constexpr int kReservedRoomBytes = 1024;  // of a CTA's shared memory, for the system

// The most bytes that a k_block of one n_tile takes of a room: codes, scales, and the limbs of one
// row.
inline constexpr int kMostKBlockBytes = kMaxKBlockSteps * (k_step_bytes(8) + limb_record_bytes(1)) +
                                        scale_bytes(ScaleKind::kGptqZeros16);

// In bytes: partial sums from 0 on, and then the rooms of all consumer warps.
struct RoomLayout {
  int rooms_at = 0;
  int room_bytes = 0;
};

// Lays out `shared_bytes` of a CTA whose items are `n_tiles` n_tiles of `matrices` matrices.
// Returns nothing if a room could not hold a k_block of every n_tile of an item.
std::optional<RoomLayout> lay_out_rooms(std::size_t shared_bytes, int matrices, int n_tiles);

}  // namespace bl::cuda
