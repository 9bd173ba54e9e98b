// In place of gemm_wgmma_dequant.cu, where the build has no code for compute capability 9.0.

#include "backend/cuda/gemm/wgmma/gemm_wgmma_dequant.h"
#include "base/check.h"

namespace bl::cuda {

bool has_wgmma(const DeviceFacts&) { return false; }

bool can_run_wgmma(const DeviceFacts&, const WgmmaArgs&) { return false; }

void gemm_wgmma_dequant(ExecContext&, const WgmmaArgs&) { BL_CHECK(false); }

}  // namespace bl::cuda
