#pragma once
// Products of many rows with packed codes, decoded in registers on their way into the tensor cores:
// nothing is expanded in memory. Compute capability 9.0 alone, code of its own (sm_90a).

#include <cuda_fp16.h>

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/layout/code_matrix.h"
#include "backend/cuda/ops/activation_math.cuh"
#include "backend/cuda/scratch_plan.h"
#include "ops/exec_context.h"

namespace bl::cuda {

struct WgmmaMatrix {
  CodeMatrixView view;
  const __half* rows = nullptr;  // [tokens][units · 32], in order of the slots; 16-byte aligned
  int widest = 8;                // bits of its widest codes
  void* out = nullptr;           // [tokens, view.out]
  std::int64_t out_stride = 0;   // elements
};

// Where the results of two matrices, gate and up, go as act(gate) · up, 16 bits an element. *alpha
// makes them kHalfGate times what they mean.
struct WgmmaActivation {
  __half* rows = nullptr;   // [tokens, out]; null: there is none
  std::int64_t stride = 0;  // elements, a multiple of 8
  // What a launch before has left of gate, kHalfGate times it: rows of one order and of the other
  // are not in one tile. Null: the first of the two matrices is gate.
  const __half* gate = nullptr;  // [tokens, out]
  std::int64_t gate_stride = 0;  // elements, a multiple of 8
  float* act_scale = nullptr;    // out, device: what the rows are divided by
  Activation kind = Activation::kSilu;
  float* largest = nullptr;  // scratch
  bool settles = false;      // the launch that makes them once more, where that is not 1
};
// Whether it can be one: SiLU or GELU by tanh, without limits.
inline bool can_fuse_activation(const ActivationParameters& activation) {
  return activation.limit <= 0.0f &&
         (activation.kind == Activation::kSilu || activation.kind == Activation::kGeluTanh);
}

// out = *alpha · rows · W, for all matrices; F32 sums of weights rounded to binary16 as the formats
// say.
struct WgmmaArgs {
  WgmmaMatrix matrices[kMaxMatrices];  // of one kind, EXL2 or GPTQ, and as many units
  int count = 0;
  std::int64_t tokens = 0;
  const float* out_scale = nullptr;  // device
  bool accumulate = false;           // F32 results are added to what is there
  // Results are binary16: widths are multiples of 16, strides and addresses of 16 bytes.
  bool halves = false;
  // In place of results. Both matrices are as wide, a multiple of 16, and read the same rows.
  WgmmaActivation activation;

  bool activates() const { return activation.rows != nullptr; }
  bool has_both() const { return activates() && activation.gate == nullptr; }
  bool stores_f16() const { return halves || activates(); }
};

// Whether this build and the card have it.
bool has_wgmma(const DeviceFacts& facts);
bool can_run_wgmma(const DeviceFacts& facts, const WgmmaArgs& args);
// Takes kPartialFloats floats of scratch at most, where slots are cut in parts.
void gemm_wgmma_dequant(ExecContext& ctx, const WgmmaArgs& args);

}  // namespace bl::cuda
