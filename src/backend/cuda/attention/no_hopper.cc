// Builds without code for compute capability 9.0.

#include "backend/cuda/attention/attention_hopper.h"
#include "base/check.h"

namespace bl::cuda {

bool takes_hopper(const ExecContext&, const AttentionParams&, CacheTypes) { return false; }

void attention_hopper(ExecContext&, const AttentionParams&, const DeviceSpanPlan&, const float2*) {
  BL_CHECK(false);
}

void attention_hopper_pieces(ExecContext&, const AttentionParams&, const HopperSplit&, int) {
  BL_CHECK(false);
}

}  // namespace bl::cuda
