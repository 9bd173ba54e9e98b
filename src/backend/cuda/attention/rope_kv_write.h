#pragma once
#include <cuda_runtime_api.h>

#include "ops/attention.h"

namespace bl::cuda {

// rope_and_write for attention that turns its queries itself: these stay as they are, and
// turns[token][rotated / 2] become (cosine, sine) · scale. Where leaves_turns says so.
void write_and_leave_turns(ExecContext& ctx, const RopeAndWriteArgs& args, float2* turns);
bool leaves_turns(const RopeAndWriteArgs& args);

}  // namespace bl::cuda
