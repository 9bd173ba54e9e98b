// Stands in for the wgmma kernels in builds without code for compute capability 9.0.

#include "backend/cuda/gemm/wgmma/gemm_wgmma_dequant.h"
#include "backend/cuda/gemm/wgmma/gemm_wgmma_grouped.h"
#include "base/check.h"

namespace bl::cuda {

bool has_wgmma(const DeviceFacts&) { return false; }

void gemm_wgmma_dequant(ExecContext&, const WgmmaPlan&) { BL_CHECK(false); }

void gemm_wgmma_grouped(ExecContext&, const WgmmaGroupedPlan&) { BL_CHECK(false); }

}  // namespace bl::cuda
