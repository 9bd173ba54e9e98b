#pragma once
// Activations packed for skinny GEMMs, by one launch in front of them: a row is normalised where a
// norm is given, divided by a power of two so that binary16 holds any range, and put into the
// fragment order of the matrices that read it.

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
  // Σx of each k_block, of what is in the fragments, as code 1 weighs it (kCodeOne):
  // [k_steps][sum_columns of the tile], at a k_block's first k_step.
  float* k_block_sums = nullptr;
};

// The target of one matrix, without memory for its activations.
FragmentTarget fragment_target_of(const CodeWeights& weights);

struct PackActivationsArgs {
  TensorView x;         // F32 [tokens, in]
  TensorView partials;  // F32 [partials, tokens, in] added to x before its norm, or empty
  TensorView x_sum;     // F32 as x: where x + Σ partials is left, or empty
  FragmentTarget targets[kMaxMatrices];
  int count = 0;
  int tile = 0;                 // tokens of one launch of the GEMM
  bool sums = true;             // k_block_sums are made
  float* row_scales = nullptr;  // [tokens] out
  InputNorm norm;
  bool encode_row_scales = false;  // as staged_input.h encodes them
  // Set to zero on the way: row scales that the GEMM behind fills in.
  float* zeros = nullptr;
  int zero_count = 0;
};

void pack_activations(ExecContext& ctx, const PackActivationsArgs& args);

// CTAs of its launch for one target (with several targets about as many). `sums`: k_block_sums are
// made.
int pack_ctas(std::int64_t tokens, bool sums);

}  // namespace bl::cuda
