#pragma once
// Helpers for rows whose length is not a multiple of sixteen.

#include "backend/cpu/simd/vec.h"

namespace bl::cpu::BL_ISA {

// Calls f(i, n) for runs of n ≤ 16 elements from i on; n is the constant 16 except for the last
// run.
template <class Index, class F>
void for_runs(Index count, const F& f) {
  Index i = 0;
  for (; i + 16 <= count; i += 16) f(i, 16);
  if (i < count) f(i, static_cast<int>(count - i));
}

// Loads the first n lanes, or all if n ≥ 16; the others are 0.
inline F32x16 load(const float* p, int n) {
  return n >= 16 ? F32x16::load(p) : F32x16::load_first(p, n);
}
inline void store(F32x16 v, float* p, int n) {
  if (n >= 16) {
    v.store(p);
  } else {
    v.store_first(p, n);
  }
}

}  // namespace bl::cpu::BL_ISA
