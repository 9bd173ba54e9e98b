// Stands in for attention_hopper.cu in builds without sm_90a code.

#include "backend/cuda/attention/attention_hopper.h"
#include "base/check.h"

namespace bl::cuda {

bool can_run_hopper(const ExecContext&, const AttentionParams&, CacheTypes) { return false; }

void attention_hopper(ExecContext&, const AttentionParams&, const DeviceSpanPlan&, const float2*) {
  BL_CHECK(false);
}

void attention_hopper_split(ExecContext&, const AttentionParams&, const HopperSplit&, int) {
  BL_CHECK(false);
}

}  // namespace bl::cuda
