#pragma once
#include "ops/backend.h"

namespace bl::cuda {

// Upper bound of the scratch that `matmul` takes.
std::size_t matmul_scratch_bytes(const Backend::ScratchShape& shape);

}  // namespace bl::cuda
