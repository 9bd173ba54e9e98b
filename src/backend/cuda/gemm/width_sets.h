#pragma once
// Sets of code widths for which the GEMMs are compiled separately: code for widths that a matrix
// lacks slows a kernel down although it never runs (bench/ladder/gemv_i8.md).

#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

// Calls f.operator()<kSet>() for the first set that contains `of`; the last one contains every
// width.
template <WidthSet kSet, WidthSet... kMore, class F>
auto with_first_set(WidthSet of, const F& f) {
  if constexpr (sizeof...(kMore) > 0) {
    if ((of & ~kSet) != 0) return with_first_set<kMore...>(of, f);
  }
  return f.template operator()<kSet>();
}

template <bool kGptq, class F>
auto with_width_set(WidthSet of, const F& f) {
  if constexpr (kGptq) {
    return with_first_set<width_set({4}), width_set({2, 3, 4, 8})>(of, f);
  } else {  // the usual mixes, with 6 bits where output layers often are
    return with_first_set<width_set({3, 4, 5, 6}), width_set({2, 3, 4}), width_set({5, 6, 8}),
                          kAllWidths>(of, f);
  }
}

}  // namespace bl::cuda
