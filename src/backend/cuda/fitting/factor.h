#pragma once
#include <cstddef>

#include "backend/cuda/fitting/fitting_device.h"
#include "ops/fitting.h"

namespace bl::cuda {

// FittingOps::factor on the card: H with both orders reversed is L · Lᵀ, and U is L⁻¹ with both
// orders reversed. L and its inverse take each other's place in one matrix of doubles, half by
// half: what is not a diagonal block is products.
std::optional<FactoredHessian> factor(FittingDevice& device, const FactorArgs& args);

}  // namespace bl::cuda
