#pragma once
#include "backend/cuda/gemm/activations/act_f16.h"
#include "backend/cuda/weights/cuda_matrix.h"
#include "ops/matmul.h"

namespace bl::cuda {

// Products of many rows (LaunchPlan::large_or_wgmma_from): activations are made rows of 16 bits;
// codes are expanded to binary16, and cuBLASLt multiplies, or they are decoded in registers
// (LaunchPlan::wgmma_from). All of a call but a norm that large_can_fuse_norm() refuses.
void gemm_large(ExecContext& ctx, const MatmulArgs& args);
bool large_can_fuse_norm(const MatmulArgs& args);
// Whether a step of so many tokens is multiplied so by a matrix. Plain ones are later than codes
// may be: their rows stay F32 until they are many.
bool is_large(const ExecContext& ctx, const PackedMatrix& matrix, std::int64_t tokens);

// act(gate) · up into args.staged_out. `halves`: the data of both views are binary16, kHalfGate
// times what they mean, at the beginning of each row.
void activate_into_halves(ExecContext& ctx, const ActivateArgs& args, bool halves);

// In which order and type products of many rows read the input of a matrix with codes or of 16
// bits, without its memory.
ActF16 act_f16_for(const PackedMatrix* weight);

// One plain matrix, eight rows at a time, F32 activations.
void dense_gemv_rows(ExecContext& ctx, const MatmulArgs& args, const MatmulOutput& output);

inline bool has_codes(const MatmulOutput& output) {
  return cuda_matrix(output.weight).codes() != nullptr;
}
inline bool has_bias(const MatmulOutput& output) { return !output.bias.empty(); }
inline const float* bias_of(const MatmulOutput& output) {
  return has_bias(output) ? output.bias.as<const float>() : nullptr;
}

}  // namespace bl::cuda
