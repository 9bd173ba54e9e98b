#pragma once
#include <cstdint>
#include <vector>

#include "convert/products.h"

namespace bl {

// Judges a change of a linear's wanted weights by rows that it was not derived from. A correction
// of earlier errors that is fitted to few rows can lower the error there and raise it elsewhere.
struct CorrectionGuard {
  Products& products;
  const std::vector<std::int32_t>& perm;  // slot → channel
  // Both are sums over the rows held out, in channel order: Σ xᵀx, F32 [in, in], of which the upper
  // triangle is read, and Σ xᵀy with the wanted outputs y, F32 [in, out].
  TensorView hessian;
  TensorView cross;

  // `weights` and `change`: F32 [in, padded out] in slot order. Returns the share s of 1, ¾, ½, ¼
  // and 0 for which weights + s · strength · change has the least error on these rows.
  double kept_share(const TensorView& weights, const TensorView& change, double strength) const;
};

}  // namespace bl
