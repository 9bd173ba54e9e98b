#include "ops/backend.h"

#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "ops/op_profile.h"

namespace bl {

std::unique_ptr<OpTimer> Backend::op_timer(OpProfile& profile) {
  return std::make_unique<HostOpTimer>(profile);
}

void Backend::copy_pieces(std::span<const CopyPiece> pieces) {
  for (const CopyPiece& piece : pieces) std::memcpy(piece.to, piece.from, piece.bytes);
}

void Backend::make_seeded(const TensorView& /*to*/, const SeededValues& /*values*/) {
  BL_CHECK(makes_seeded());
}

void Backend::choose_launch(std::string_view name, std::int64_t /*from*/) {
  fail(ErrorCode::kInvalidArgument, "there is no launch choice {}", name);
}

}  // namespace bl
