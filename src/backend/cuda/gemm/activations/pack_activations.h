#pragma once
// Activations packed for skinny GEMMs, by one launch in front of them: a row is normalised if there
// is a norm, divided by a power of two so that binary16 holds any range, and stored in the fragment
// order of the matrices that read it. Bound by the latency of reading the row; not measured as a
// share.

#include "backend/cuda/gemm/packed_gemm_args.h"
#include "ops/exec_context.h"
#include "tensor/tensor_view.h"

namespace bl::cuda {

struct CodeWeights;

// The activations of one input layout.
struct FragmentTarget {
  const std::int32_t* feature_of_k = nullptr;  // [k_steps · 32], −1: no feature
  std::int32_t k_steps = 0;
  const KBlock* k_blocks = nullptr;
  std::int32_t k_block_count = 0;
  // By tiles of tokens: [k_steps][tokens of the tile][16], see fragment_offset().
  std::uint32_t* fragments = nullptr;
  // Σx of each k_block over the values in the fragments, in multiples of kCodeOne:
  // [k_steps][sum_columns of the tile], at a k_block's first k_step.
  float* k_block_sums = nullptr;
};

// Returns the target of one matrix, without memory for its activations.
FragmentTarget fragment_target_of(const CodeWeights& weights);

struct PackActivationsArgs {
  TensorView x;         // F32 [tokens, in]
  TensorView partials;  // F32 [partials, tokens, in] added to x before its norm, or empty
  TensorView x_sum;     // F32 as x: where x + Σ partials is left, or empty
  FragmentTarget targets[kMaxMatrices];
  int count = 0;
  int tile = 0;                 // tokens of one launch of the GEMM
  bool sums = true;             // whether to make k_block_sums
  float* row_scales = nullptr;  // [tokens] out
  InputNorm norm;
  bool encode_row_scales = false;  // in the encoding of staged_input.h
  // Set to zero on the way: the row scales that the GEMM behind accumulates.
  float* zeros = nullptr;
  int zero_count = 0;
};

void pack_activations(ExecContext& ctx, const PackActivationsArgs& args);

// CTAs of its launch for one target; several targets have about as many in all. `sums`:
// k_block_sums are made.
int pack_ctas(std::int64_t tokens, bool sums);

}  // namespace bl::cuda
