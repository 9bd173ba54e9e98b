#include "sample/guidance.h"

#include <limits>

#include "base/check.h"
#include "sample/log_probability.h"

namespace bl {

void mix_guidance(std::span<const float> logits, std::span<const float> negative, double scale,
                  std::span<float> out) {
  BL_CHECK(logits.size() == negative.size() && out.size() == logits.size());
  constexpr float kLowest = -std::numeric_limits<float>::max();
  constexpr float kOut = -std::numeric_limits<float>::infinity();
  const auto shift = static_cast<float>(log_sum_exp(logits));
  const auto negative_shift = static_cast<float>(log_sum_exp(negative));
  const auto s = static_cast<float>(scale);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float a = logits[i];
    const float b = negative[i];
    out[i] = a >= kLowest && b >= kLowest ? s * (a - shift) + (1 - s) * (b - negative_shift) : kOut;
  }
}

}  // namespace bl
