#pragma once
#include "ops/op_table.h"

namespace bl::cuda {

// Returns the ops of this backend.
OpTable make_ops();
// Returns ops that do nothing. When the graph of a step is replayed, the step's body runs with
// them, for its uploads alone.
OpTable make_replay_ops();

}  // namespace bl::cuda
