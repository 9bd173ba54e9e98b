#pragma once
#include "ops/op_table.h"

namespace bl::cuda {

// The ops of this backend.
OpTable make_ops();
// Ops that do nothing: the body of a recorded step runs with them when its graph is replayed, for
// the sake of its uploads alone.
OpTable make_replay_ops();

}  // namespace bl::cuda
