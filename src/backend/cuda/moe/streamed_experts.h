#pragma once
#include "backend/cuda/moe/cuda_experts.h"
#include "ops/exec_context.h"
#include "ops/matmul.h"

namespace bl::cuda {

// Whether streamed_experts() can be the way: where there are bulk copies, and all matrices of a
// role have codes with scales of one kind. A row's bits depend on the number of rows there, so
// deterministic mode does not take it.
bool can_stream_experts(const ExecContext& ctx, const ExpertsArgs& args,
                        const CudaExperts& experts);

// The op `experts` for few rows an expert: sorts the choices, packs rows as limbs, multiplies by
// gate and up with the activation in the epilogue, packs the hidden rows, multiplies by down, and
// adds a token's results up. Its scratch memory is never more than ExpertScratch::bytes().
void streamed_experts(ExecContext& ctx, const ExpertsArgs& args, const CudaExperts& experts);

}  // namespace bl::cuda
