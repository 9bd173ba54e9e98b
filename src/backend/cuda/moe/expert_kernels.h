#pragma once
// The launches of the op `experts` (experts.cc), in their order.

#include "backend/cuda/gemm/packed_gemm_args.h"
#include "backend/cuda/moe/expert_matrix.h"
#include "backend/cuda/ops/activation_math.cuh"
#include "ops/exec_context.h"

namespace bl::cuda {

// Sorts the choices by expert: fills the tables of `rows`.
void sort_choices(ExecContext& ctx, const ExpertRows& rows);

// Packed activations in the input layout of one matrix of each expert.
struct ExpertFragments {
  const ExpertMatrix* table = nullptr;  // [experts]
  std::uint32_t* fragments = nullptr;   // [rows][k_steps][16]
};

// Packs x of each choice's token, in up to two input layouts.
struct ExpertInputArgs {
  ExpertRows rows;
  const float* x = nullptr;  // [tokens, in]
  std::int64_t x_stride = 0;
  std::int32_t in = 0;
  ExpertFragments input_layouts[2];
  std::int32_t input_layout_count = 0;
  std::int32_t k_steps = 0;     // of a row: the most that any expert has
  float* row_scales = nullptr;  // [rows] out: what the fragments were divided by
  bool weigh = false;           // scales also get the choice's weight
};
void pack_expert_inputs(ExecContext& ctx, const ExpertInputArgs& args);

// Packs, or stores as F32, act(gate) · up of each live row for the down matrices.
struct ExpertHiddenArgs {
  ExpertRows rows;
  const float* first = nullptr;  // [rows, gate | up], or [rows, up]
  std::int64_t first_stride = 0;
  std::int32_t width = 0;
  bool gated = false;
  ActivationParameters activation;
  const ExpertMatrix* down = nullptr;  // [experts]

  ExpertFragments to;  // for down matrices with codes
  std::int32_t k_steps = 0;
  float* row_scales = nullptr;

  float* hidden = nullptr;  // for plain down matrices: [rows, width]
  std::int64_t hidden_stride = 0;
};
void pack_expert_hidden(ExecContext& ctx, const ExpertHiddenArgs& args);
void activate_expert_rows(ExecContext& ctx, const ExpertHiddenArgs& args);

// out = x · W + bias of each live row, for one or two matrices of its expert.
struct ExpertGemmArgs {
  struct Matrix {
    const ExpertMatrix* table = nullptr;  // [experts]
    std::int32_t out = 0;
    std::int32_t first_column = 0;             // in a row of `out`
    const std::uint32_t* fragments = nullptr;  // codes
    // Codes: the most bytes that a copy_block of one n_tile has, in any expert.
    std::int32_t copy_block_bytes = 0;
    std::int32_t copy_block_scale_bytes = 0;
  };
  ExpertRows rows;
  Matrix matrices[2];
  std::int32_t count = 0;
  float* out = nullptr;  // [rows, out_stride]
  std::int64_t out_stride = 0;

  std::int32_t k_steps = 0;           // codes: of a packed row
  const float* row_scales = nullptr;  // codes: [rows]

  const float* x = nullptr;  // plain: [tokens, in], or [rows, in]
  std::int64_t x_stride = 0;
  std::int32_t in = 0;
  bool x_of_tokens = false;
  bool weigh = false;  // plain: multiply x by the choice's weight
};
// Each launch multiplies the blocks whose experts' matrices have codes, or are plain.
void expert_code_gemm(ExecContext& ctx, const ExpertGemmArgs& args);
void expert_plain_gemm(ExecContext& ctx, const ExpertGemmArgs& args);

// out[t] += Σ_j weight · (y[row of (t, j)] · row_scale + bias), in order of j.
struct ExpertSumArgs {
  ExpertRows rows;
  const float* y = nullptr;  // [rows, columns]
  std::int64_t y_stride = 0;
  const float* row_scales = nullptr;   // [rows] multiply y, or null
  const ExpertMatrix* down = nullptr;  // [experts] whose biases are added to y, or null
  float* out = nullptr;                // [tokens, columns]
  std::int64_t out_stride = 0;
  std::int32_t columns = 0;
  bool weigh = true;
};
void sum_experts(ExecContext& ctx, const ExpertSumArgs& args);

}  // namespace bl::cuda
