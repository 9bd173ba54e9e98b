#pragma once
// What the ops take of the arena of a step: pure arithmetic, so that a plan needs no card.

#include <cstddef>
#include <cstdint>

#include "ops/backend.h"

namespace bl::cuda {

// Upper bound of what any op takes by itself, and of what plan_attention holds for the whole step.
std::size_t op_scratch_bytes(const Backend::ScratchShape& shape, int multiprocessors);

}  // namespace bl::cuda
