// In place of tile_product.cu, where the build has no code for compute capability 9.0.

#include "backend/cuda/gemm/wgmma/gemm_wgmma_dequant.h"
#include "base/check.h"

namespace bl::cuda {

bool has_tile_product(const DeviceFacts&) { return false; }

bool takes_tile_product(const DeviceFacts&, const TileProductArgs&) { return false; }

void tile_product(ExecContext&, const TileProductArgs&) { BL_CHECK(false); }

}  // namespace bl::cuda
