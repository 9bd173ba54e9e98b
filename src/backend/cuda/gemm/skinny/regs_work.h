#pragma once
#include "backend/cuda/gemm/skinny/skinny_plan.h"

namespace bl::cuda {

// The ranges of n_tiles of a planned launch, as the kernel gets them.
struct RegsCtaRanges {
  CtaRangeBegins begins;
  int ctas = 0;
};
struct RegsWork : RegsTiling {               // common to all matrices
  const RegsQuad* quads[kMaxMatrices] = {};  // device memory
  RegsCtaRanges cta_ranges;
  bool pairs = false;    // two n_tiles at a time
  int k_split_rows = 0;  // rows from one k_split's partial sums to the next
};

}  // namespace bl::cuda
