#pragma once
// Kernel arguments of GEMMs of a few tokens with packed codes, which are most of a decoding step.

#include <cstdint>

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/gemm/activations/staged_input.h"
#include "backend/cuda/layout/code_matrix.h"
#include "backend/cuda/layout/gemm_limits.h"
#include "backend/cuda/ops/activation_math.cuh"

namespace bl::cuda {

// Columns of a launch's table of activation sums: the tokens, padded to whole mma tiles.
BL_HD constexpr int sum_columns(int tokens) { return tokens <= 8 ? 8 : kMaxSkinnyTokens; }

struct PackedGemmMatrix {
  CodeMatrixView view;
  WidthSet widths = 0;  // code widths that occur in the matrix
  bool padded = false;  // some k have no input feature
  // The most bytes that a copy_block of one n_tile takes: codes; and scales, including what copies
  // of whole 16 bytes bring along.
  std::int32_t copy_block_bytes = 0;
  std::int32_t copy_block_scale_bytes = 0;
  // Activations of all tokens as pack_activations() made them; null where the GEMV makes them
  // itself.
  const std::uint32_t* fragments = nullptr;
  // From pack_activations() too, see FragmentTarget; null for gemm_skinny_regs().
  const float* k_block_sums = nullptr;
  // For the GEMV, [in]: see fragment_offset().
  const std::uint16_t* fragment_offset_of_feature = nullptr;
  // Identity: its k are features [first_feature, first_feature + features) in their order, and it
  // reads no others. Else it reads all `features` and fragment_offset_of_feature says which it
  // uses.
  bool is_identity = false;
  int first_feature = 0;
  int features = 0;
  // Matrices with equal numbers have the same permutation and k_tiling; numbers count from 0.
  int input_layout = 0;
  int k_blocks_at = 0;          // where its k_blocks begin in a table of all matrices' k_blocks
  float* out = nullptr;         // [tokens, view.out]
  std::int64_t out_stride = 0;  // elements
  const float* bias = nullptr;  // [view.out] or null
  // GEMV: `partial` [tokens, view.out] is added to what is in `out`, or null. `fresh`: `out` is
  // overwritten even if the launch accumulates.
  const float* partial = nullptr;
  bool fresh = false;
};

// RMS norm fused into the prologue: x · weight / rms(x).
struct InputNorm {
  bool present = false;
  const float* weight = nullptr;  // F32 [in] or null for none
  float unit_offset = 0.0f;       // added to the weight
  float eps = 0.0f;
  float reciprocal_in = 0.0f;  // 1 / in
};

struct PackedGemmArgs {
  PackedGemmMatrix matrices[kMaxMatrices];
  int count = 0;
  int tokens = 0;                // at most kMaxSkinnyTokens
  std::int64_t first_token = 0;  // where this launch begins in the packed rows
  // [all tokens] scales of the packed rows; for staged fragments (staged_input.h), row_absmax.
  const float* row_scales = nullptr;
  const std::int32_t* feature_of_k = nullptr;  // staged fragments: that of the only matrix
  StagedFragments stage_out;                   // gated results that are staged for the next GEMM
  // [tokens, in]; not read if pack_activations() or an earlier GEMM made the fragments.
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  // For the GEMV: [tokens, in] added to x, or null; see `x_partial_multiplies`.
  const float* x_partial = nullptr;
  float* x_sum = nullptr;  // for the GEMV of several tokens: where x + x_partial is left, or null
  std::int64_t x_sum_stride = 0;
  int in = 0;
  // GEMV, in shared memory: bytes of one input layout's limbs, and where the limb scales begin in
  // them.
  int input_layout_bytes = 0;
  int limb_scale_at = 0;
  bool pairs = false;  // one token's k_blocks are multiplied in pairs, see can_pair_k_blocks()
  InputNorm norm;
  float multiplier = 1.0f;
  bool accumulate = false;
  // Use one kernel for any number of tokens, so that a row's bits do not depend on the other rows.
  bool regardless_of_batch = false;
  // Two matrices: matrices[1].out = act(x · W₀) · (x · W₁); matrices[0].out is not written.
  bool gated = false;
  // Two matrices: matrices[0].out = SiLU(x · W₀); matrices[1].out = x · W₁ unchanged.
  bool gate_alone = false;
  bool x_partial_multiplies = false;  // the input is x · x_partial, not x + x_partial
  ActivationParameters activation;
};

// Bytes of a matrix's table of k_blocks, or of pairs of them.
BL_HD constexpr int table_bytes(const CodeMatrixView& m, bool pairs) {
  return pairs ? m.pair_count * static_cast<int>(sizeof(KBlockPair))
               : m.k_block_count * static_cast<int>(sizeof(KBlock));
}

// Returns the code widths that occur in any of the matrices.
WidthSet widths_of(const PackedGemmArgs& args);

// Whether all matrices are GPTQ, each with one zero point for all its groups.
bool has_no_zeros(const PackedGemmArgs& args);

// Whether all matrices have the same permutation and k_tiling, so that one packed input serves all.
inline bool has_one_input_layout(const PackedGemmArgs& args) {
  for (int i = 1; i < args.count; ++i) {
    if (args.matrices[i].input_layout != 0) return false;
  }
  return true;
}

// Checks what every launch assumes: all matrices EXL2 or all GPTQ, and gated ones of equal n_tiles.
void check_packed_gemm(const PackedGemmArgs& args);

// Tokens of one skinny launch on this card: fewer where a multiprocessor has little shared memory.
int max_skinny_tokens(const DeviceFacts& facts);

}  // namespace bl::cuda
