// Builds without code for compute capability 9.0.

#include "backend/cuda/attention_hopper.h"

namespace bl::cuda {

bool attention_hopper(ExecContext&, const AttentionParams&, const DeviceSpanPlan&, CacheType) {
  return false;
}

}  // namespace bl::cuda
