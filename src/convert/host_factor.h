#pragma once
#include "convert/host_threads.h"
#include "ops/fitting.h"

namespace bl {

// FittingOps::factor in host memory: a Cholesky factor and its inverse, block by block in double.
std::optional<FactoredHessian> factor_on_host(const HostThreads& threads, const FactorArgs& args);

}  // namespace bl
