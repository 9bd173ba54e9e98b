#pragma once
#include "backend/cuda/fitting/fitting_device.h"
#include "ops/fitting.h"

namespace bl::cuda {

// FittingOps::round on the card. It waits once, for the result.
RoundResult round(FittingDevice& device, const RoundArgs& args);

}  // namespace bl::cuda
