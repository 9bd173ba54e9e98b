#pragma once
// The ops on rows. Their contracts are in ops/elementwise.h and ops/sample.h.

#include "ops/elementwise.h"
#include "ops/exec_context.h"
#include "ops/sample.h"

namespace bl::cuda {

void embed(ExecContext& ctx, const EmbedArgs& args);
void norm(ExecContext& ctx, const NormArgs& args);
void add(ExecContext& ctx, const AddArgs& args);
void scale(ExecContext& ctx, const ScaleArgs& args);
void gate(ExecContext& ctx, const GateArgs& args);
void clamp(ExecContext& ctx, const ClampArgs& args);
void copy_rows(ExecContext& ctx, const CopyRowsArgs& args);
void add_rows(ExecContext& ctx, const AddRowsArgs& args);
void argmax(ExecContext& ctx, const ArgmaxArgs& args);
void sample(ExecContext& ctx, const SampleArgs& args);

}  // namespace bl::cuda
