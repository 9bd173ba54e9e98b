#include "backend/cuda/cuda_ops.h"

namespace bl::cuda {
namespace {

// The op becomes one that does nothing, where there is one.
template <class... Args>
void silence(void (*&op)(ExecContext&, const Args&...)) {
  if (op != nullptr) op = [](ExecContext&, const Args&...) {};
}

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
  ops.add_rows = add_rows;
  ops.matmul = matmul;
  ops.route = route;
  ops.experts = experts;
  ops.rope = rope;
  ops.kv_write = kv_write;
  ops.attention = attention;
  ops.argmax = argmax;
  ops.sample = sample;
  ops.rope_and_write = rope_and_write;
  ops.rope_write_attend = rope_write_attend;
  ops.staged_input_width = staged_input_width;
  ops.partials_left = partials_left;
  ops.defers_gate_mul = defers_gate_mul;
  ops.matmul_normalises = true;
  ops.matmul_activates = true;
  return ops;
}

CudaOps make_replay_ops() {
  CudaOps ops = make_ops();
  // Every member has a name here: this does not compile with an op that nobody silences.
  auto& [embed, norm, activate, add, scale, gate, clamp, copy_rows, add_rows, matmul, route,
         experts, rope, kv_write, attention, rope_and_write, rope_write_attend, argmax, sample,
         staged_input_width, partials_left, defers_gate_mul, matmul_normalises, matmul_activates] =
      static_cast<OpTable&>(ops);
  const auto silence_all = [](auto&... op) { (silence(op), ...); };
  silence_all(embed, norm, activate, add, scale, gate, clamp, copy_rows, add_rows, matmul, route,
              experts, rope, kv_write, attention, rope_and_write, rope_write_attend, argmax,
              sample);
  // What these would leave nobody reads: the layers need not plan for it in every step.
  staged_input_width = nullptr;
  defers_gate_mul = nullptr;
  return ops;
}

}  // namespace bl::cuda
