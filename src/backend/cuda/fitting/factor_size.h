#pragma once
// How much memory a factor of a Hessian takes; pure arithmetic that needs no card.

#include <cstddef>
#include <cstdint>

namespace bl::cuda {

// Rows of a diagonal block: two of them in double fit the shared memory of every card.
inline constexpr int kFactorBlock = 48;

// Rows or columns of a triangular product that are computed together; a multiple of kFactorBlock.
inline constexpr int kFactorStripe = 8 * kFactorBlock;

// Bytes that factor() takes for n channels beside the sums that it is given: the doubles and Uᵀ,
// which are there together; then H and Uᵀ, which are its result.
constexpr std::size_t factor_bytes(std::int64_t n) {
  const auto size = static_cast<std::size_t>(n);
  const std::size_t doubles = size * size + kFactorStripe * size;
  return doubles * sizeof(double) + size * size * sizeof(float) + 2 * size * sizeof(float);
}

}  // namespace bl::cuda
