#pragma once
// The ops on floats of this backend; their contracts are in ops/.

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"

namespace bl::cpu {

void embed(ExecContext& ctx, const EmbedArgs& args);
void norm(ExecContext& ctx, const NormArgs& args);
void activate(ExecContext& ctx, const ActivateArgs& args);
void add(ExecContext& ctx, const AddArgs& args);
void scale(ExecContext& ctx, const ScaleArgs& args);
void gate(ExecContext& ctx, const GateArgs& args);
void clamp(ExecContext& ctx, const ClampArgs& args);
void copy_rows(ExecContext& ctx, const CopyRowsArgs& args);
void route(ExecContext& ctx, const RouteArgs& args);
void rope(ExecContext& ctx, const RopeArgs& args);
void kv_write(ExecContext& ctx, const KvWriteArgs& args);
void attention(ExecContext& ctx, const AttentionArgs& args);

}  // namespace bl::cpu
