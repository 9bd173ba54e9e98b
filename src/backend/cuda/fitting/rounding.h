#pragma once
#include "backend/cuda/fitting/fitting_device.h"
#include "ops/fitting.h"

namespace bl::cuda {

// FittingOps::round on the card. It waits for the card only when it reads results back: once where
// only errors are asked for, up to five times otherwise.
RoundResult round(FittingDevice& device, const RoundArgs& args);

}  // namespace bl::cuda
