// Compiled once for each instruction set, in namespace bl::BL_ISA (CMakeLists.txt). No function
// here may have external linkage outside of that namespace: the linker would keep one copy for all
// sets.

#include <bit>
#include <cstdint>

#include "base/fast_exp.h"
#include "sample/row_kernels.h"

namespace bl::BL_ISA {
namespace {

// Maps the bits of a float to an integer that orders like the float: −NaN, −∞, …, ∞, NaN. Unlike
// for floats, the maximum of integers does not depend on the order in which they are compared.
std::int32_t ordered(std::int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }
constexpr std::int32_t kInfinityBits = 0x7f800000;

float largest(const float* values, std::size_t count) {
  std::int32_t most = std::numeric_limits<std::int32_t>::min();
  std::int32_t least = std::numeric_limits<std::int32_t>::max();
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t x = ordered(std::bit_cast<std::int32_t>(values[i]));
    most = x > most ? x : most;
    least = x < least ? x : least;
  }
  const bool bad = most >= kInfinityBits || least < -kInfinityBits - 1;
  return bad ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(ordered(most));
}

// Σ term(i) for i < count.
template <class Term>
double sum_of(std::size_t count, Term&& term) {
  double totals[kLanes];
  for (std::size_t j = 0; j < kLanes; ++j) totals[j] = 0;
  std::size_t i = 0;
  while (i + kLanes <= count) {
    const std::size_t end = count - i < kShort ? count - kLanes + 1 : i + kShort - kLanes + 1;
    float sums[kLanes];
    for (std::size_t j = 0; j < kLanes; ++j) sums[j] = 0;
    for (; i < end; i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) sums[j] += term(i + j);
    }
    for (std::size_t j = 0; j < kLanes; ++j) totals[j] += static_cast<double>(sums[j]);
  }
  double total = 0;
  for (; i < count; ++i) total += static_cast<double>(term(i));
  for (std::size_t j = 0; j < kLanes; ++j) total += totals[j];
  return total;
}

double exp_sum(const float* logits, std::size_t count, const ScoreFormula& formula) {
  constexpr float kDeepest = -1e6f;  // its cube is still a float
  const ScoreFormula f = formula;
  if (!f.smooth) {
    return sum_of(count, [=](std::size_t i) {
      const float weight = fast_exp((logits[i] - f.top) * f.inverse);
      return logits[i] >= f.floor ? weight : 0.0f;
    });
  }
  return sum_of(count, [=](std::size_t i) {
    const float x = logits[i] - f.top;
    const float bounded = x < kDeepest ? kDeepest : x;
    const float weight = fast_exp(bounded * bounded * (f.square + f.cube * bounded) * f.inverse);
    return logits[i] >= f.floor ? weight : 0.0f;
  });
}

const float* block_above(const float* begin, const float* end, float cut) {
  for (const float* block = begin; block != end; block += kBlock) {
    unsigned above[kLanes];
    for (std::size_t j = 0; j < kLanes; ++j) above[j] = 0;
    for (std::size_t g = 0; g < kBlock; g += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) above[j] |= block[g + j] > cut ? 1u : 0u;
    }
    unsigned any = 0;
    for (std::size_t j = 0; j < kLanes; ++j) any |= above[j];
    if (any != 0) return block;
  }
  return end;
}

double weigh(const float* scores, float* weights, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) weights[i] = fast_exp(scores[i]);
  return sum_of(count, [=](std::size_t i) { return weights[i]; });
}

}  // namespace

extern const RowKernels kRowKernels;
const RowKernels kRowKernels{largest, exp_sum, block_above, weigh};

}  // namespace bl::BL_ISA
