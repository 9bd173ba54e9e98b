#pragma once
// Products of several tokens with packed codes by warpgroups (wgmma): compute capability 9.0 alone,
// code of its own (sm_90a). Where it is not, product() does it.

#include "backend/cuda/product/product.h"

namespace bl::cuda {

// Tokens of one launch; 0 where this build or the card does not have it.
int most_warpgroup_tokens(const DeviceFacts& facts);

// Enqueues it: as product(), of at most so many tokens, whose activations prepare() made in bricks.
void warpgroup_product(ExecContext& ctx, const ProductArgs& args, const StripShares& shares);

}  // namespace bl::cuda
