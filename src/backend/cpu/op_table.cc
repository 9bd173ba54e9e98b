#include "backend/cpu/cpu_ops.h"

namespace bl::cpu {

CpuOps make_ops(Isa isa) {
  CpuOps ops;
  ops.embed = embed;
  ops.norm = norm;
  ops.activate = activate;
  ops.add = add;
  ops.scale = scale;
  ops.gate = gate;
  ops.clamp = clamp;
  ops.copy_rows = copy_rows;
  ops.add_rows = add_rows;
  ops.matmul = matmul;
  ops.route = route;
  ops.experts = experts;
  ops.rope = rope;
  ops.kv_write = kv_write;
  ops.attention = attention;
  ops.rope_write_attend = rope_write_attend;
  ops.kernels = &kernels_for(isa);
  return ops;
}

}  // namespace bl::cpu
