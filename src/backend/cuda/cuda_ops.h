#pragma once
// The ops of this backend; their contracts are in ops/.

#include <cuda_runtime_api.h>

#include "ops/exec_context.h"
#include "ops/op_table.h"

namespace bl {
class CudaBackend;
}

namespace bl::cuda {

// The op table also carries the device, since a context is all that an op gets.
struct CudaOps : OpTable {
  CudaBackend* backend = nullptr;
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  bool dependent_launch = false;  // launch.cuh
};

CudaOps make_ops();
// Ops that do nothing: what the body of a recorded step runs with.
CudaOps make_replay_ops();

inline const CudaOps& cuda_ops_of(const ExecContext& ctx) {
  return *static_cast<const CudaOps*>(ctx.ops);
}

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
std::int64_t staged_input_width(const ExecContext& ctx, const PackedMatrix& reader,
                                std::int64_t tokens);
std::int64_t partials_left(const ExecContext& ctx, const PackedMatrix& weight, std::int64_t tokens);
bool defers_gate_mul(const ExecContext& ctx, const GatedMatrices& matrices,
                     const ActivateArgs& activation);
void route(ExecContext& ctx, const RouteArgs& args);
void experts(ExecContext& ctx, const ExpertsArgs& args);
void rope(ExecContext& ctx, const RopeArgs& args);
void kv_write(ExecContext& ctx, const KvWriteArgs& args);
void attention(ExecContext& ctx, const AttentionArgs& args);
void argmax(ExecContext& ctx, const ArgmaxArgs& args);
void sample(ExecContext& ctx, const SampleArgs& args);
void rope_and_write(ExecContext& ctx, const RopeAndWriteArgs& args);
void rope_write_attend(ExecContext& ctx, const RopeAndWriteArgs& rope, const AttentionArgs& args);

}  // namespace bl::cuda
