#pragma once
// GEMVs of one token's experts with packed codes, compute capability 9.0 and later. CTAs are
// persistent, have adjacent items, and stream codes through the smem pipeline as in
// expert_stream.h.
//
// Gate and up: an item is the same n_tiles of both matrices of one expert. The consumer warps make
// limbs of the token's row themselves while the first codes are on their way, and the epilogue
// activates. Down: an item is a few n_tiles of all experts that the token chose, walked over one
// behind the other as if K were that long, so that nothing is left to be added up. Its rows are
// longer and were packed by pack_expert_limbs().
//
// Bound by reading the chosen experts' weights, and by latencies where experts are small:
// bench/ladder/moe_decode.md.

#include "backend/cuda/device/device_facts.h"
#include "backend/cuda/moe/expert_matrix.h"
#include "backend/cuda/ops/activation_math.cuh"
#include "ops/exec_context.h"

namespace bl::cuda {

inline constexpr int kMostTokenExperts = 32;  // that a token chooses: the producer warp's lanes

struct ExpertTokenArgs {
  // Columns [first_n_tile · 16, …) of a matrix of each expert.
  struct Matrix {
    const ExpertMatrix* table = nullptr;  // [experts]
    std::int32_t first_n_tile = 0;
    // The most bytes that a copy_block of one n_tile has, in any expert.
    std::int32_t copy_block_bytes = 0;
    std::int32_t copy_block_scale_bytes = 0;
  };
  const std::int32_t* experts = nullptr;  // [k]; those that do not exist count with weight 0
  const float* weights = nullptr;         // [k]
  std::int32_t k = 0;
  std::int32_t expert_count = 0;
  Matrix matrices[2];
  std::int32_t count = 0;             // 2: gate and up
  std::int32_t out = 0;               // columns of the result
  ScaleKind kind = ScaleKind::kExl2;  // of all experts' codes
  std::int32_t zero = 0;              // likewise
  std::int32_t k_steps = 0;           // of an n_tile: the most that any expert has
  std::int32_t k_blocks = 0;          // likewise
  const float* x = nullptr;           // gate and up: the token's row
  const std::byte* limbs = nullptr;   // down: [k] packed rows
  bool weigh = false;                 // rows, and biases of down, are multiplied by their weights
  // Down: the choices' results are added up to what is at `to`. Else the result of choice j goes to
  // `to` + j · to_stride.
  bool sums = false;
  // The result is act(gate) · up, or act(up) of one matrix, where `activates`; else the products.
  bool activates = false;
  ActivationParameters activation;
  bool has_bias = false;  // of any expert
  float* to = nullptr;
  std::int64_t to_stride = 0;
  // Set by plan_expert_token(): n_tiles of an item, groups of warps that share them, the warps of a
  // group, and the CTAs of the launch.
  std::int32_t item_n_tiles = 0;
  std::int32_t item_groups = 0;
  std::int32_t parts = 0;
  std::int32_t ctas = 0;
  // The launch behind this one that sums, whose first codes each producer warp prefetches to L2
  // when all its own copies are issued; without a table: none.
  struct Next {
    const ExpertMatrix* table = nullptr;
    std::int32_t item_n_tiles = 0;
    std::int32_t n_tiles = 0;
    std::int32_t ctas = 0;
  } next;
};

// Whether a CTA has room for the limbs of a row of `k_steps` k_steps.
bool has_room_for_limbs(const DeviceFacts& facts, std::int64_t k_steps);

// Plans the launch: call it when all else is set.
void plan_expert_token(const DeviceFacts& facts, ExpertTokenArgs& args);

// What a launch prefetches of the planned launch behind it, which sums.
ExpertTokenArgs::Next next_of(const ExpertTokenArgs& args);

void expert_token_gemv(ExecContext& ctx, const ExpertTokenArgs& args);

}  // namespace bl::cuda
