#include "backend/cuda/cuda_ops.h"

namespace bl::cuda {
namespace {

template <class Args>
void silent(ExecContext&, const Args&) {}

}  // namespace

CudaOps make_ops() {
  CudaOps ops;
  ops.embed = embed;
  ops.norm = norm;
  ops.activate = activate;
  ops.add = add;
  ops.scale = scale;
  ops.gate = gate;
  ops.clamp = clamp;
  ops.copy_rows = copy_rows;
  ops.matmul = matmul;
  ops.route = route;
  ops.experts = experts;
  ops.rope = rope;
  ops.kv_write = kv_write;
  ops.attention = attention;
  ops.rope_and_write = rope_and_write;
  ops.matmul_normalises = true;
  return ops;
}

CudaOps make_silent_ops() {
  CudaOps ops;
  ops.embed = silent<EmbedArgs>;
  ops.norm = silent<NormArgs>;
  ops.activate = silent<ActivateArgs>;
  ops.add = silent<AddArgs>;
  ops.scale = silent<ScaleArgs>;
  ops.gate = silent<GateArgs>;
  ops.clamp = silent<ClampArgs>;
  ops.copy_rows = silent<CopyRowsArgs>;
  ops.matmul = silent<MatmulArgs>;
  ops.route = silent<RouteArgs>;
  ops.experts = silent<ExpertsArgs>;
  ops.rope = silent<RopeArgs>;
  ops.kv_write = silent<KvWriteArgs>;
  ops.attention = silent<AttentionArgs>;
  ops.rope_and_write = silent<RopeAndWriteArgs>;
  ops.matmul_normalises = true;
  return ops;
}

}  // namespace bl::cuda
