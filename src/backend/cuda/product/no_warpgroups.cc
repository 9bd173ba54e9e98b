// In place of warpgroup_product.cu and tile_product.cu, where the build has no code for compute
// capability 9.0.

#include "backend/cuda/product/tile_product.h"
#include "backend/cuda/product/warpgroup_product.h"
#include "base/check.h"

namespace bl::cuda {

int most_warpgroup_tokens(const DeviceFacts&) { return 0; }

void warpgroup_product(ExecContext&, const ProductArgs&, const StripShares&) { BL_CHECK(false); }

bool has_tile_product(const DeviceFacts&) { return false; }

bool takes_tile_product(const DeviceFacts&, const TileProductArgs&) { return false; }

void tile_product(ExecContext&, const TileProductArgs&) { BL_CHECK(false); }

}  // namespace bl::cuda
