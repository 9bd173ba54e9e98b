#pragma once
// What becomes of the sums of a product.

#include "backend/cuda/gemm/pipeline/smem_pipeline.cuh"

namespace bl::cuda {

// A group of strips whose sums are to be added up.
struct FinishedNTiles {
  int matrix = 0;
  NTileRange n_tiles;
};

struct ResultIndex {
  int matrix;
  int token;
  int column;
};

// Where a result goes; null beyond the matrix's columns. kAlone: there is one token.
template <bool kAlone>
__device__ __forceinline__ float* result_at(const ResultIndex& at, const PackedGemmArgs& args) {
  const PackedGemmMatrix& m = args.matrices[at.matrix];
  if (at.column >= m.view.out) return nullptr;
  if constexpr (kAlone) return m.out + at.column;
  return m.out + (args.first_token + at.token) * m.out_stride + at.column;
}

// What a sum becomes, but for what it is added to. `gate` of a gated product is kept by the thread
// between the result of its first matrix and that of the second. kPlain: no biases, and what is
// gated is so by plain SiLU. False where nothing is stored yet.
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

// Returns what is stored.
__device__ __forceinline__ float store_result(const ResultIndex& at, const PackedGemmArgs& args,
                                              float& gate, float value) {
  float* to = result_at<false>(at, args);
  if (to == nullptr || !finish_result<false>(at, args, gate, value)) return 0.0f;
  if (args.accumulate) value += *to;
  *to = value;
  return value;
}

}  // namespace bl::cuda
