#include "backend/cuda/op_table.h"

#include "backend/cuda/attention/attention_ops.h"
#include "backend/cuda/gemm/gemm_ops.h"
#include "backend/cuda/moe/moe_ops.h"
#include "backend/cuda/ops/row_ops.h"

namespace bl::cuda {
namespace {

// Replaces an op by one that does nothing. A null op stays null.
template <class... Args>
void silence(void (*&op)(ExecContext&, const Args&...)) {
  if (op != nullptr) op = [](ExecContext&, const Args&...) {};
}

}  // namespace

OpTable make_ops() {
  return {.embed = embed,
          .norm = norm,
          .activate = activate,
          .add = add,
          .scale = scale,
          .gate = gate,
          .clamp = clamp,
          .copy_rows = copy_rows,
          .add_rows = add_rows,
          .matmul = matmul,
          .route = route,
          .experts = experts,
          .rope = rope,
          .kv_write = kv_write,
          .attention = attention,
          .rope_and_write = rope_and_write,
          .rope_write_attend = rope_write_attend,
          .argmax = argmax,
          .sample = sample,
          .gemm_fusion = gemm_fusion};
}

OpTable make_replay_ops() {
  OpTable ops = make_ops();
  // This binds every member, so that it fails to compile when an op is added to OpTable: add the
  // new op to the list below, too.
  auto& [embed, norm, activate, add, scale, gate, clamp, copy_rows, add_rows, matmul, route,
         experts, rope, kv_write, attention, rope_and_write, rope_write_attend, argmax, sample,
         gemm_fusion] = ops;
  const auto silence_all = [](auto&... op) { (silence(op), ...); };
  silence_all(embed, norm, activate, add, scale, gate, clamp, copy_rows, add_rows, matmul, route,
              experts, rope, kv_write, attention, rope_and_write, rope_write_attend, argmax,
              sample);
  // Replay ops stage nothing for the next op, so layers need not ask in every step what can be
  // fused.
  gemm_fusion = nullptr;
  return ops;
}

}  // namespace bl::cuda
