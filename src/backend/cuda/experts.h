#pragma once
#include "ops/backend.h"

namespace bl::cuda {

// Upper bound of the scratch that `experts` takes.
std::size_t experts_scratch_bytes(const Backend::ScratchShape& shape);

}  // namespace bl::cuda
