#pragma once
// Binary16 rows for the grouped wgmma GEMMs of experts (grouped_experts.cc): rows are sorted by
// expert, without padding between experts.

#include "backend/cuda/gemm/wgmma/wgmma_grouped_plan.h"
#include "backend/cuda/moe/expert_matrix.h"
#include "backend/cuda/ops/activation_math.cuh"
#include "ops/exec_context.h"

struct __half;

namespace bl::cuda {

// x of each choice's token, in the order of k of its expert's matrix. Rows behind the last live one
// become zeros.
struct GroupedInputArgs {
  ExpertRows rows;
  const float* x = nullptr;  // [tokens, in]
  std::int64_t x_stride = 0;
  std::int32_t in = 0;                  // a multiple of 8
  const ExpertMatrix* table = nullptr;  // [experts]
  std::int32_t k = 0;                   // elements of a row: at least those of any expert
  __half* to = nullptr;                 // [choices, k]
  bool weigh = false;                   // multiply by the choice's weight
  const float* token_largest = nullptr;
  // Out, device: multiplier · the power of two that all rows are divided by.
  float* out_scale = nullptr;
  float multiplier = 1.0f;
};
void make_grouped_input(ExecContext& ctx, const GroupedInputArgs& args);

// Writes the largest magnitude of each token's rows to `to` [tokens].
void find_token_largest(ExecContext& ctx, const GroupedInputArgs& args, float* to);

// act(gate + bias) · (up + bias) of each live row, in the order of k of its expert's down matrix,
// divided by a power of two of its own.
struct GroupedHiddenArgs {
  ExpertRows rows;
  const float* first = nullptr;  // [choices, gate | up], or [choices, up]
  std::int64_t first_stride = 0;
  std::int32_t width = 0;  // a multiple of 8
  bool gated = false;
  ActivationParameters activation;
  // The biases of [gate | up]: gate's table, whose biases precede those of up's, or null.
  const ExpertMatrix* gate = nullptr;
  const ExpertMatrix* up = nullptr;
  const ExpertMatrix* down = nullptr;
  std::int32_t k = 0;
  __half* to = nullptr;         // [choices, k]
  float* row_scales = nullptr;  // [choices] out
};
void make_grouped_hidden(ExecContext& ctx, const GroupedHiddenArgs& args);

// Permutes the first `width` elements of each row into the order of k of its expert's down matrix,
// in place.
struct GroupedGatherArgs {
  ExpertRows rows;
  __half* data = nullptr;  // [choices, k]
  std::int32_t k = 0;
  std::int32_t width = 0;  // a multiple of 8, at most k
  const ExpertMatrix* down = nullptr;
};
void gather_grouped_hidden(ExecContext& ctx, const GroupedGatherArgs& args);

// The widest row that these kernels can hold in shared memory.
inline constexpr std::int64_t kWidestGroupedRow = (48 << 10) / 2 - 64;

}  // namespace bl::cuda
