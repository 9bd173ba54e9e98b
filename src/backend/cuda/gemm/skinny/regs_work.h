#pragma once
#include "backend/cuda/gemm/skinny/skinny_plan.h"

namespace bl::cuda {

// A planned launch as the kernel gets it.
struct RegsCtaRanges {
  CtaRangeBegins begins;
  int ctas = 0;
};
struct RegsWork : RegsTiling {               // what holds for all matrices
  const RegsQuad* quads[kMaxMatrices] = {};  // device memory
  RegsCtaRanges cta_ranges;
  bool pairs = false;    // two n_tiles at a time
  int k_split_rows = 0;  // rows from the partial sums of one k_split to the next one's
};

}  // namespace bl::cuda
