#pragma once
// The ops of this backend. Headers in ops/ state their contracts.

#include "backend/cpu/kernels.h"
#include "ops/exec_context.h"
#include "ops/op_table.h"

namespace bl::cpu {

// The op table, extended by the kernels of the chosen instruction set, because a context is all
// that an op gets.
struct CpuOps : OpTable {
  const Kernels* kernels = nullptr;
};

// Returns the kernels of the backend that this context belongs to.
inline const Kernels& kernels_of(const ExecContext& ctx) {
  return *static_cast<const CpuOps*>(ctx.ops)->kernels;
}

CpuOps make_ops(Isa isa);

void embed(ExecContext& ctx, const EmbedArgs& args);
void norm(ExecContext& ctx, const NormArgs& args);
void activate(ExecContext& ctx, const ActivateArgs& args);
void add(ExecContext& ctx, const AddArgs& args);
void scale(ExecContext& ctx, const ScaleArgs& args);
void gate(ExecContext& ctx, const GateArgs& args);
void clamp(ExecContext& ctx, const ClampArgs& args);
void copy_rows(ExecContext& ctx, const CopyRowsArgs& args);
void add_rows(ExecContext& ctx, const AddRowsArgs& args);
void matmul(ExecContext& ctx, const MatmulArgs& args);
void route(ExecContext& ctx, const RouteArgs& args);
void experts(ExecContext& ctx, const ExpertsArgs& args);
void rope(ExecContext& ctx, const RopeArgs& args);
void kv_write(ExecContext& ctx, const KvWriteArgs& args);
void attention(ExecContext& ctx, const AttentionArgs& args);
void rope_write_attend(ExecContext& ctx, const RopeAndWriteArgs& before, const AttentionArgs& args);

}  // namespace bl::cpu
