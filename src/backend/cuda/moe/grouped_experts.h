#pragma once
#include "backend/cuda/moe/cuda_experts.h"
#include "ops/exec_context.h"
#include "ops/matmul.h"

namespace bl::cuda {

// Whether grouped_experts() is the way for so many tokens: on compute capability 9.0, where all
// matrices of a role have codes of one kind and experts have many rows on average. A row's bits
// depend on the other rows there, so deterministic mode does not take it.
bool can_group_experts(const ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts,
                       std::int64_t tokens);

// Returns an upper bound of the scratch memory for `tokens` tokens, whatever the router chooses. It
// is never more than ExpertScratch::bytes().
std::size_t grouped_expert_bytes(const ExpertsArgs& args, const CudaExperts& experts,
                                 std::int64_t tokens);

// The op `experts` through grouped wgmma GEMMs: sorts the choices, makes binary16 rows, multiplies
// by gate and up with the activation in the epilogue, by down, and adds a token's results up.
void grouped_experts(ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts);

}  // namespace bl::cuda
