#pragma once
// The sets of widths for which products have kernels of their own: code for widths that a matrix
// has not stands in the way of what runs, though it never does (bench/ladder/exl2_gemv).

#include "backend/cuda/layout/code_matrix.h"

namespace bl::cuda {

// f.operator()<kSet>() of the first of these sets that has all widths of `of`; the last has all
// there are.
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
  } else {  // what mixes are made of, with 6 bits where output layers often are
    return with_first_set<width_set({3, 4, 5, 6}), width_set({2, 3, 4}), width_set({5, 6, 8}),
                          kAllWidths>(of, f);
  }
}

}  // namespace bl::cuda
