#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/rows.h"
#include "base/check.h"

namespace bl::cpu {
namespace {

// Scratch of one token.
struct Scores {
  float* affinity;   // [experts]: becomes the weight
  float* selection;  // [experts]: decides the choice
  std::int64_t experts;
};

constexpr std::size_t kMaxExperts = 4096;
constexpr float kTaken = -INFINITY;

float softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }

void fill_affinity(const RouteArgs& args, const float* logits, const Scores& s) {
  if (args.kind == RouteKind::kSigmoid) {
    for (std::int64_t e = 0; e < s.experts; ++e)
      s.affinity[e] = 1.0f / (1.0f + std::exp(-logits[e]));
    return;
  }
  if (args.kind == RouteKind::kSqrtSoftplus) {
    for (std::int64_t e = 0; e < s.experts; ++e) s.affinity[e] = std::sqrt(softplus(logits[e]));
    return;
  }
  const float top = *std::max_element(logits, logits + s.experts);
  float total = 0.0f;
  for (std::int64_t e = 0; e < s.experts; ++e) {
    s.affinity[e] = std::exp(logits[e] - top);
    total += s.affinity[e];
  }
  for (std::int64_t e = 0; e < s.experts; ++e) s.affinity[e] /= total;
}

// Sum of the two best experts of a group.
float group_value(const float* selection, std::int64_t size) {
  float best = kTaken;
  float second = kTaken;
  for (std::int64_t e = 0; e < size; ++e) {
    if (selection[e] > best) {
      second = best;
      best = selection[e];
    } else {
      second = std::max(second, selection[e]);
    }
  }
  return size > 1 ? best + second : best;
}

// Excludes the experts outside the best groups, even if all scores inside are negative. Ties go to
// the lower group.
void keep_best_groups(const RouteArgs& args, const Scores& s) {
  const std::int64_t size = s.experts / args.group_count;
  const auto rank_of = [&](int group) {
    const float value = group_value(s.selection + group * size, size);
    int better = 0;
    for (int g = 0; g < args.group_count; ++g) {
      const float other = group_value(s.selection + g * size, size);
      better += other > value || (other == value && g < group) ? 1 : 0;
    }
    return better;
  };
  std::array<bool, kMaxExperts> dropped;
  for (int g = 0; g < args.group_count; ++g) {
    dropped[static_cast<std::size_t>(g)] = rank_of(g) >= args.group_top;
  }
  for (int g = 0; g < args.group_count; ++g) {
    if (dropped[static_cast<std::size_t>(g)]) std::fill_n(s.selection + g * size, size, kTaken);
  }
}

float divisor_of(const RouteArgs& args, const float* weights) {
  if (args.normalize_power > 0.0f) {
    float total = 0.0f;
    for (int j = 0; j < args.k; ++j) total += std::pow(std::fabs(weights[j]), args.normalize_power);
    return std::pow(total, 1.0f / args.normalize_power);
  }
  float total = 0.0f;
  for (int j = 0; j < args.k; ++j) total += weights[j];
  if (args.kind == RouteKind::kSoftmaxTopK) return total;
  return args.normalize && args.kind != RouteKind::kSoftmax ? total + 1e-20f : 1.0f;
}

void route_token(const RouteArgs& args, std::int64_t t, const Scores& s) {
  const float* logits = args.logits.row<float>(t);
  fill_affinity(args, logits, s);
  const bool softmax = args.kind == RouteKind::kSoftmax || args.kind == RouteKind::kSoftmaxTopK;
  const float* bias = args.selection_bias.as<float>();
  for (std::int64_t e = 0; e < s.experts; ++e) {
    // Softmax preserves the order of the logits, but may underflow; so compare logits.
    const float plain = softmax && bias == nullptr ? logits[e] : s.affinity[e];
    s.selection[e] = plain + (bias != nullptr ? bias[e] : 0.0f);
  }
  if (args.group_count > 1) keep_best_groups(args, s);
  float* weights = args.weights.row<float>(t);
  for (int j = 0; j < args.k; ++j) {
    const auto best = std::max_element(s.selection, s.selection + s.experts) - s.selection;
    args.experts[t * args.k + j] = static_cast<std::int32_t>(best);
    weights[j] = s.affinity[best];
    s.selection[best] = kTaken;
  }
  const float factor = args.multiplier / divisor_of(args, weights);
  const float* scale = args.expert_scale.as<float>();
  for (int j = 0; j < args.k; ++j) {
    weights[j] *= factor;
    if (scale != nullptr) weights[j] *= scale[args.experts[t * args.k + j]];
  }
}

}  // namespace

void route(ExecContext& ctx, const RouteArgs& args) {
  const std::int64_t experts = args.logits.columns();
  BL_CHECK(experts <= static_cast<std::int64_t>(kMaxExperts) && args.k <= experts);
  for_rows(ctx, args.logits.rows(), experts * (args.k + 8), [&](std::int64_t t) {
    std::array<float, kMaxExperts> affinity;
    std::array<float, kMaxExperts> selection;
    route_token(args, t, {affinity.data(), selection.data(), experts});
  });
}

}  // namespace bl::cpu
