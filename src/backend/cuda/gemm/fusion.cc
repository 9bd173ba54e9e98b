#include "backend/cuda/gemm/fusion.h"

#include "backend/cuda/gemm/gemm_ops.h"
#include "backend/cuda/gemm/gemm_state.h"
#include "backend/cuda/gemm/route.h"
#include "backend/cuda/gemm/wgmma/gemm_wgmma_dequant.h"

namespace bl::cuda {

GemmProblem gemm_problem(const ExecContext& ctx, const MatmulArgs& gemm) {
  const DeviceFacts& facts = cuda_device(ctx).facts();
  return {.gemm = gemm,
          .facts = facts,
          .thresholds = gemm_state(ctx).launch_plan,
          .wgmma = has_wgmma(facts),
          .deterministic = ctx.deterministic,
          .scratch = ctx.scratch == nullptr ? 0 : ctx.scratch->capacity() - ctx.scratch->mark()};
}

GemmFusion gemm_fusion(const ExecContext& ctx, const GemmFusionQuery& query) {
  const MatmulArgs none;
  return fusion_offered(gemm_problem(ctx, none), gemm_state(ctx).partitions, query);
}

bool is_staged_fragments(const ExecContext& ctx, const StagedInput& staged) {
  const MatmulArgs none;
  return is_staged_fragments(gemm_problem(ctx, none), staged);
}

}  // namespace bl::cuda
