#include "random_routing.h"

#include <algorithm>
#include <cmath>

#include "random_source.h"

namespace bl {
namespace {

constexpr std::int64_t kLeastClasses = 16;
// A class's channel beside the sum of what blocks add to all channels of classes.
constexpr float kMargin = 8.0f;
// The logit of a class's first expert, of which the others of the class have up to kSpread less.
// All other experts have its negative.
constexpr float kLogit = 4.0f;
constexpr float kSpread = 0.1f;
// A class has other experts in the next layer: those of the class so much further on.
constexpr std::int64_t kLayerStep = 5;

// Classes enough that every expert belongs to one.
std::int64_t classes_for(const TensorOutline& outline) {
  std::int64_t classes = 0;
  for (const OutlinedLinear& linear : outline.linears) {
    if (linear.role != LinearRole::kRouter) continue;
    const std::int64_t all = (linear.out + linear.per_token - 1) / linear.per_token;
    classes = std::max({classes, all, kLeastClasses});
  }
  return classes;
}

}  // namespace

RoutingCode::RoutingCode(const ModelSpec& spec, const TensorOutline& outline)
    : hidden_(spec.hidden),
      classes_(std::min(classes_for(outline), spec.hidden / 4)),
      embed_multiplier_(spec.embed_multiplier),
      // Each block adds two vectors whose elements are below 1 (RandomMatrices::level_size()): the
      // mean over keys, and the mean over experts.
      stream_(std::sqrt(1.0f + 0.5f * static_cast<float>(spec.layers))) {
  amplitude_ = kMargin * std::sqrt(static_cast<float>(classes_)) * stream_;
  spread_ = std::sqrt(stream_ * stream_ + amplitude_ * amplitude_ / static_cast<float>(hidden_));
}

void RoutingCode::fill_table(const TensorView& table, std::uint64_t seed, float size) const {
  fill_even(table, seed, -size, size);
  visit_float_dtype(table.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t row = 0; row < table.rows(); ++row) {
      T* values = table.row<T>(row);
      for (std::int64_t code = 0; code < classes_; ++code) values[channel_of(code)] = T(0.0f);
      const auto code =
          static_cast<std::int64_t>(next_random(seed) % static_cast<std::uint64_t>(classes_));
      values[channel_of(code)] = T(amplitude_ / embed_multiplier_);
    }
  });
}

void RoutingCode::fill_norm(const TensorView& weight, std::uint64_t seed, float offset) const {
  // The loud channel makes all others smaller, as far as it is loud.
  const float others = spread_ / stream_;
  visit_float_dtype(weight.dtype, [&]<class T>(Tag<T>) {
    auto* values = weight.as<T>();
    for (std::int64_t i = 0; i < hidden_; ++i) {
      values[i] = T((next_random(seed) & 1 ? others : -others) - offset);
    }
    for (std::int64_t code = 0; code < classes_; ++code) {
      values[channel_of(code)] = T(spread_ / amplitude_ - offset);
    }
  });
}

void RoutingCode::fill_router(const TensorView& weight, const OutlinedLinear& router) const {
  const float input = router.router_input == RouterInput::kWeighted     ? 1.0f
                      : router.router_input == RouterInput::kNormalised ? amplitude_ / spread_
                                                                        : amplitude_;
  const std::int64_t experts = router.out;
  visit_float_dtype(weight.dtype, [&]<class T>(Tag<T>) {
    std::fill_n(weight.as<T>(), weight.shape.elements(), T(0.0f));
    for (std::int64_t code = 0; code < classes_; ++code) {
      const std::int64_t channel = channel_of(code);
      for (std::int64_t e = 0; e < experts; ++e) {
        weight.row<T>(e)[channel] = T(-kLogit / input);
      }
      const std::int64_t first = (code + router.layer * kLayerStep) % classes_ * router.per_token;
      for (std::int64_t i = 0; i < router.per_token; ++i) {
        const float share = static_cast<float>(i) / static_cast<float>(router.per_token);
        const float score = 1.0f - kSpread * share;
        weight.row<T>((first + i) % experts)[channel] = T(score * kLogit / input);
      }
    }
  });
}

}  // namespace bl
