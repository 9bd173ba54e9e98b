#pragma once
// Epilogue of the GEMMs with packed codes: bias, act(gate) · up, accumulation, store.

#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"

namespace bl::cuda {

// A group of n_tiles whose partial sums wait to be reduced over the warps.
struct FinishedNTiles {
  int matrix = 0;
  NTileRange n_tiles;
};

struct ResultIndex {
  int matrix;
  int token;
  int column;
};

// Returns where a result is stored; null beyond the matrix's columns. kAlone: there is one token.
template <bool kAlone>
__device__ __forceinline__ float* result_at(const ResultIndex& at, const PackedGemmArgs& args) {
  const PackedGemmMatrix& m = args.matrices[at.matrix];
  if (at.column >= m.view.out) return nullptr;
  if constexpr (kAlone) return m.out + at.column;
  return m.out + (args.first_token + at.token) * m.out_stride + at.column;
}

// Adds the bias and applies the gate. The thread keeps `gate`, the first matrix's result, until it
// has the second one's. kPlain: there are no biases, and gating is plain SiLU. Returns false if
// there is nothing to store yet.
template <bool kPlain>
__device__ __forceinline__ bool finish_result(const ResultIndex& at, const PackedGemmArgs& args,
                                              float& gate, float& value) {
  if constexpr (!kPlain) {
    const float* bias = args.matrices[at.matrix].bias;
    if (bias != nullptr) value += bias[at.column];
  }
  if (!args.gated) return true;
  if (at.matrix == 0) {
    gate = value;
    return false;
  }
  value = kPlain ? act<Activation::kSilu>(args.activation, gate) * value
                 : activated(args.activation, gate, value, true);
  return true;
}

// Returns the stored value.
__device__ __forceinline__ float store_result(const ResultIndex& at, const PackedGemmArgs& args,
                                              float& gate, float value) {
  float* to = result_at<false>(at, args);
  if (to == nullptr || !finish_result<false>(at, args, gate, value)) return 0.0f;
  if (args.accumulate) value += *to;
  *to = value;
  return value;
}

}  // namespace bl::cuda
