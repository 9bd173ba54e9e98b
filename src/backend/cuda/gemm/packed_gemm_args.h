#pragma once
// Products of a few tokens with packed codes: what a decode step consists of.

#include <cstdint>

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/gemm/activations/staged_input.h"
#include "backend/cuda/layout/code_matrix.h"
#include "backend/cuda/layout/gemm_limits.h"
#include "backend/cuda/ops/activation_math.cuh"

namespace bl::cuda {

// Columns of a launch's sums of activations.
BL_HD constexpr int sum_columns(int tokens) { return tokens <= 8 ? 8 : kMaxSkinnyTokens; }

struct PackedGemmMatrix {
  CodeMatrixView view;
  WidthSet widths = 0;  // that its codes have
  bool padded = false;  // it has slots without a channel
  // The most that a piece takes of a strip: of codes, and of scales with what 16-byte copies bring.
  std::int32_t copy_block_bytes = 0;
  std::int32_t copy_block_scale_bytes = 0;
  // Activations of all tokens as prepare() made them; null where the product makes them itself.
  const std::uint32_t* fragments = nullptr;
  const float* k_block_sums = nullptr;  // the same, see FragmentTarget; null for gemm_skinny_regs()
  const std::uint16_t* fragment_offset_of_feature = nullptr;  // then [in], see fragment_offset
  // Its slots are channels [first_feature, first_feature + channels) in their order, and it reads
  // no others. Else it reads all `channels`, and places say which are its own.
  bool is_identity = false;
  int first_feature = 0;
  int features = 0;
  int input_layout = 0;         // equal numbers: equal places and chunks; they count from 0
  int k_blocks_at = 0;          // in a table of all matrices' chunks, where a product has one
  float* out = nullptr;         // [tokens, view.out]
  std::int64_t out_stride = 0;  // elements
  const float* bias = nullptr;  // [view.out] or null
  // Of one token: [view.out] that is added to what is in `out`, or null; and whether nothing is.
  const float* partial = nullptr;
  bool fresh = false;
};

// RMS norm of what a product reads.
struct InputNorm {
  bool present = false;
  const float* weight = nullptr;  // F32 [in] or null for none
  float unit_offset = 0.0f;       // added to the weight
  float eps = 0.0f;
  float cta_range = 0.0f;  // 1 / in
};

struct PackedGemmArgs {
  PackedGemmMatrix matrices[kMaxMatrices];
  int count = 0;
  int tokens = 0;                // at most kMaxSkinnyTokens
  std::int64_t first_token = 0;  // of the prepared rows
  // [all tokens], of prepared rows; where they were left (left_input.h), notes.
  const float* row_scales = nullptr;
  const std::int32_t* feature_of_k = nullptr;  // of the only matrix, where they were left
  StagedFragments stage_out;                   // gated ones, to the next product
  const float* x = nullptr;  // [tokens, in]: not read where prepare() did, or left ones serve
  std::int64_t x_stride = 0;
  const float* x_partial =
      nullptr;  // of one token: added to x, or null; see `x_partial_multiplies`
  int in = 0;
  // Of shared memory, of what a CTA makes of its input for a gather, and where within it digits'
  // worth begins.
  int input_layout_bytes = 0;
  int limb_scale_at = 0;
  bool pairs = false;  // chunks of one token are taken in pairs, see can_pair_k_blocks()
  InputNorm norm;
  float multiplier = 1.0f;
  bool accumulate = false;
  // The same kernel for any number of tokens, so that a row has the same bits beside any others.
  bool regardless_of_batch = false;
  // Two matrices: matrices[1].out = act(x · W₀) · (x · W₁); matrices[0].out is not written.
  bool gated = false;
  // Two matrices: matrices[0].out = SiLU(x · W₀), and the second one's is as it comes.
  bool gate_alone = false;
  bool x_partial_multiplies = false;  // x · x_partial is what is read
  ActivationParameters activation;
};

// Of a matrix's table of chunks, or of pairs of them.
BL_HD constexpr int table_bytes(const CodeMatrixView& m, bool pairs) {
  return pairs ? m.pair_count * static_cast<int>(sizeof(KBlockPair))
               : m.k_block_count * static_cast<int>(sizeof(KBlock));
}

// That occur in any of the matrices.
WidthSet widths_of(const PackedGemmArgs& args);

// Whether all are GPTQ with the same zero point everywhere in a matrix.
bool has_no_zeros(const PackedGemmArgs& args);

// Whether all matrices read the same input: their slots hold the same channels, in equal chunks.
inline bool has_one_input_layout(const PackedGemmArgs& args) {
  for (int i = 1; i < args.count; ++i) {
    if (args.matrices[i].input_layout != 0) return false;
  }
  return true;
}

// What every launch needs: matrices all EXL2 or all GPTQ, gated ones of equal strips. A bug else.
void check_packed_gemm(const PackedGemmArgs& args);

// Tokens of one skinny launch on this card: fewer where a multiprocessor has little shared memory.
int max_skinny_tokens(const DeviceFacts& facts);

}  // namespace bl::cuda
