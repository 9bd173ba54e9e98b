#include "backend/cuda/moe/own_code_rooms.h"

namespace bl::cuda {

std::optional<RoomLayout> lay_out_rooms(std::size_t shared_bytes, int matrices, int n_tiles) {
  const int bytes = static_cast<int>(shared_bytes) - kReservedRoomBytes;
  RoomLayout layout;
  layout.rooms_at = PipelineShape::rounded(kConsumerWarps * matrices * n_tiles * kNTileColumns *
                                           static_cast<int>(sizeof(float)));
  layout.room_bytes = (bytes - layout.rooms_at) / kConsumerWarps / 128 * 128;
  if (layout.room_bytes < kMostKBlockBytes * n_tiles) return std::nullopt;
  return layout;
}

}  // namespace bl::cuda
