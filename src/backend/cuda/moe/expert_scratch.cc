#include "backend/cuda/moe/expert_scratch.h"

#include "backend/cuda/device/arena_sizes.h"
#include "backend/cuda/layout/allocation.h"
#include "backend/cuda/moe/expert_matrix.h"
#include "tensor/arena.h"

namespace bl::cuda {
// Counts with large blocks, which need the most rows.
std::size_t ExpertScratch::bytes(std::int64_t tokens) const {
  const std::int64_t choices = tokens * k;
  const std::int64_t rows = most_blocks(choices, experts, kLargeBlock) * kLargeBlock;
  const auto packed = [rows](std::int64_t k_steps) {
    return f16_bytes(rows * k_steps * kKStepSize) + f32_bytes(2 * rows * k_steps);
  };
  return 3 * arena_bytes(DType::kI32, choices) + arena_bytes(DType::kI32, rows) +
         arena_bytes(DType::kI32, 1) + 2 * f32_bytes(rows) +
         static_cast<std::size_t>(input_layouts) * packed(input_k_steps) +
         f32_bytes(rows * rounded(first_width)) + packed(hidden_k_steps) +
         f32_bytes(rows * rounded(hidden_width)) + f32_bytes(rows * rounded(out));
}

std::size_t expert_table_bytes(std::int64_t experts) {
  constexpr std::size_t kRoles = 3;  // gate, up, down
  return allocation_bytes(static_cast<std::size_t>(experts) * kRoles * sizeof(ExpertMatrix));
}

}  // namespace bl::cuda
