#pragma once
#include <cstdint>

#include "backend/cuda/layout/code_matrix.h"
#include "backend/cuda/ops/activation_math.cuh"

namespace bl::cuda {

// What the launches of expert_stream.h and expert_token.h are told of their products.
struct ExpertProducts {
  std::int32_t count = 0;             // matrices; 2: gate and up
  std::int32_t out = 0;               // columns of the result
  ScaleKind kind = ScaleKind::kExl2;  // of all experts' codes
  std::int32_t zero = 0;              // likewise
  std::int32_t k_steps = 0;           // of an n_tile: the most that any expert has
  std::int32_t k_blocks = 0;          // likewise
  // The result is act(gate) · up, or act(up) of one matrix, where `activates`; else the products.
  bool activates = false;
  ActivationParameters activation;
  bool has_bias = false;  // of any expert
  float* to = nullptr;
  std::int64_t to_stride = 0;
  // How the work is divided (item_shape.h): n_tiles of an item, groups of warps that share them,
  // and the warps of a group.
  std::int32_t item_n_tiles = 0;
  std::int32_t item_groups = 0;
  std::int32_t parts = 0;
};

}  // namespace bl::cuda
