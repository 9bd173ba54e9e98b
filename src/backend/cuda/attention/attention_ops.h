#pragma once
// Rope, cache writes and attention. Their contracts are in ops/attention.h.

#include "ops/attention.h"
#include "ops/exec_context.h"

namespace bl::cuda {

void rope(ExecContext& ctx, const RopeArgs& args);
void kv_write(ExecContext& ctx, const KvWriteArgs& args);
void attention(ExecContext& ctx, const AttentionArgs& args);
void rope_and_write(ExecContext& ctx, const RopeAndWriteArgs& args);
void rope_write_attend(ExecContext& ctx, const RopeAndWriteArgs& rope, const AttentionArgs& args);

}  // namespace bl::cuda
