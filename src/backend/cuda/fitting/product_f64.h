#pragma once
#include <cstdint>

#include "backend/cuda/fitting/fitting_device.h"

namespace bl::cuda {

// A matrix of doubles on the card; rows lie `stride` elements apart.
struct DoubleRows {
  double* data = nullptr;
  std::int64_t stride = 0;
  double* at(std::int64_t row, std::int64_t column) const { return data + row * stride + column; }
};

// c [m, n] = alpha · a [m, k] · b + beta · c in double, for factors of Hessians.
struct DoubleProduct {
  DoubleRows c;
  DoubleRows a;
  DoubleRows b;  // [k, n], or [n, k] where `b_transposed`
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  double alpha = 1.0;
  double beta = 0.0;
  bool b_transposed = false;
  bool lower = false;    // of c, only what is on or below the diagonal is wanted
  bool b_lower = false;  // b [k, n] counts as zero above its diagonal
};

// c may be a itself where n ≤ kDoubleTile: a CTA has then read its rows of a before it writes them.
inline constexpr int kDoubleTile = 64;
void multiply(FittingDevice& device, const DoubleProduct& product);

}  // namespace bl::cuda
