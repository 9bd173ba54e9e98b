#include <array>
#include <cmath>
#include <limits>

#include "sample/row_kernels.h"
#include "sample/stages/logit_stages.h"

namespace bl {
namespace {

bool wanted(const SamplingParams& p) { return p.top_n_sigma > 0; }

// Standard deviation of the finite logits, computed on x − shift.
double deviation(std::span<const float> logits, float shift) {
  double count = 0;
  double sum = 0;
  double squares = 0;
  for (std::size_t begin = 0; begin < logits.size(); begin += kRun) {
    const std::size_t end = std::min(begin + kRun, logits.size());
    std::array<float, kLanes> counts{};
    std::array<float, kLanes> sums{};
    std::array<float, kLanes> square_sums{};
    std::size_t i = begin;
    const auto add = [&](float logit, std::size_t lane) {
      const bool finite = logit >= -std::numeric_limits<float>::max();
      const float x = finite ? logit - shift : 0.0f;
      counts[lane] += finite ? 1.0f : 0.0f;
      sums[lane] += x;
      square_sums[lane] += x * x;
    };
    for (; i + kLanes <= end; i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) add(logits[i + j], j);
    }
    for (; i < end; ++i) add(logits[i], 0);
    for (std::size_t j = 0; j < kLanes; ++j) {
      count += static_cast<double>(counts[j]);
      sum += static_cast<double>(sums[j]);
      squares += static_cast<double>(square_sums[j]);
    }
  }
  const double mean = sum / count;
  return std::sqrt(std::max(0.0, squares / count - mean * mean));
}

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  // Subtracting any value near the logits keeps the squares small; the mean of about 64 of them
  // will do.
  double near = 0;
  int taken = 0;
  const std::span<const float> logits = row.args->logits;
  for (std::size_t i = 0; i < logits.size(); i += 1 + logits.size() / 64) {
    if (logits[i] < -std::numeric_limits<float>::max()) continue;
    near += static_cast<double>(logits[i]);
    ++taken;
  }
  const double shift = taken > 0 ? near / taken : static_cast<double>(row.top.value);
  const double width = p.top_n_sigma * deviation(logits, static_cast<float>(shift));
  row.floor = static_cast<float>(static_cast<double>(row.top.value) - width);
}

}  // namespace

const SamplerStage kSigmaStage{"top-n-sigma", wanted, apply};

}  // namespace bl
