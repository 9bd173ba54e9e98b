// Compiled once an instruction set, in namespace bl::BL_ISA (CMakeLists.txt). Nothing here may
// leave a function outside of that namespace behind: the linker would take one of them for all.

#include <bit>
#include <cstdint>

#include "sample/fast_exp.h"
#include "sample/row_kernels.h"

namespace bl::BL_ISA {
namespace {

// Bits of floats as integers that order alike: −NaN, −∞, …, ∞, NaN. Maxima of integers may be taken
// in any order, those of floats not.
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

// Σ term(i), i < count.
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

double exp_sum(const float* values, std::size_t count, float top, float inverse) {
  return sum_of(count, [=](std::size_t i) { return fast_exp((values[i] - top) * inverse); });
}

template <bool kSmooth>
void add_depth_mass(std::span<const float> run, const ScoreFormula& formula, DepthMass& mass) {
  const float* values = run.data();
  const std::size_t count = run.size();
  const ScoreFormula f = formula;
  constexpr float kDeepest = -1e6f;  // its cube is still a float
  const auto score_of = [&](float value) {
    const float x = value - f.top;
    if (!kSmooth) return x * f.inverse;
    const float bounded = x < kDeepest ? kDeepest : x;
    return bounded * bounded * (f.square + f.cube * bounded) * f.inverse;
  };
  double totals[4][kLanes];
  for (std::size_t j = 0; j < kLanes; ++j) {
    totals[0][j] = totals[1][j] = totals[2][j] = totals[3][j] = 0;
  }
  for (std::size_t begin = 0; begin < count; begin += kShort) {
    const std::size_t end = count - begin < kShort ? count : begin + kShort;
    float all[kLanes], first[kLanes], second[kLanes], third[kLanes];
    for (std::size_t j = 0; j < kLanes; ++j) all[j] = first[j] = second[j] = third[j] = 0;
    const auto add = [&](std::size_t i, std::size_t j) {
      const float score = score_of(values[i]);
      const float weight = values[i] >= f.floor ? fast_exp(score) : 0.0f;
      all[j] += weight;
      first[j] += score > -kDepths[0] ? weight : 0.0f;
      second[j] += score > -kDepths[1] ? weight : 0.0f;
      third[j] += score > -kDepths[2] ? weight : 0.0f;
    };
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) add(i + j, j);
    }
    for (std::size_t j = 0; i < end; ++i, ++j) add(i, j);
    for (std::size_t j = 0; j < kLanes; ++j) {
      totals[0][j] += static_cast<double>(all[j]);
      totals[1][j] += static_cast<double>(first[j]);
      totals[2][j] += static_cast<double>(second[j]);
      totals[3][j] += static_cast<double>(third[j]);
    }
  }
  for (std::size_t j = 0; j < kLanes; ++j) {
    mass.all += totals[0][j];
    mass.above[0] += totals[1][j];
    mass.above[1] += totals[2][j];
    mass.above[2] += totals[3][j];
  }
}

void depth_mass(std::span<const float> run, const ScoreFormula& formula, DepthMass& mass) {
  if (formula.smooth) {
    add_depth_mass<true>(run, formula, mass);
  } else {
    add_depth_mass<false>(run, formula, mass);
  }
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
const RowKernels kRowKernels{largest, exp_sum, depth_mass, block_above, weigh};

}  // namespace bl::BL_ISA
