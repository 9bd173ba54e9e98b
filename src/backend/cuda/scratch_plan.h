#pragma once
// The scratch memory that the ops of a step take from its arena. Pure arithmetic that needs no
// card.

#include <cstddef>
#include <cstdint>

#include "ops/backend.h"

namespace bl::cuda {

// Returns an upper bound in bytes: the most that any single op takes, plus what plan_attention and
// the sampling inputs hold for the whole step.
std::size_t op_scratch_bytes(const Backend::ScratchShape& shape, int multiprocessors);

}  // namespace bl::cuda
