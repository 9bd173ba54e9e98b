#pragma once
#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"

namespace bl::test {

// What lies between the products of an expert, in double: SiLU, relu², or the clamped one of
// gpt-oss with a limit of 0.5.
inline double activated(Activation kind, double gate, double up, bool gated) {
  if (kind == Activation::kSwigluOai) {
    gate = std::min(gate, 0.5);
    up = std::clamp(up, -0.5, 0.5);
    return gate / (1.0 + std::exp(-1.702 * gate)) * (up + 1.0);
  }
  const double act = kind == Activation::kRelu2 ? std::max(gate, 0.0) * std::max(gate, 0.0)
                                                : gate / (1.0 + std::exp(-gate));
  return gated ? act * up : act;
}

}  // namespace bl::test
