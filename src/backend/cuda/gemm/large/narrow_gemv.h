#pragma once
#include "backend/cuda/gemm/large/plain_gemv_launch.h"
#include "ops/exec_context.h"

namespace bl::cuda {

// Plain matrices of so few columns, such as routers, are read from L2 by many CTAs at once.
inline constexpr std::int64_t kMaxNarrowColumns = 1024;

// GEMV of a plain matrix of at most kMaxNarrowColumns columns: F32 activations of any number of
// tokens in one launch, weights F32, F16 or BF16, any card. A CTA has four columns and up to eight
// tokens, and its warps share K; sums have a fixed order, which does not depend on the number of
// tokens. Bound by latency; the share is not measured.
void narrow_gemv(ExecContext& ctx, const DenseGemvArgs& args);

}  // namespace bl::cuda
