#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/ref/ref_ops.h"

namespace bl::ref {
namespace {

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

// The weight of each expert before any normalization.
std::vector<double> affinities(const RouteArgs& args, const float* logits, std::size_t count) {
  std::vector<double> a(logits, logits + count);
  switch (args.kind) {
    case RouteKind::kSoftmax:
    case RouteKind::kSoftmaxTopK: {
      const double top = *std::max_element(a.begin(), a.end());
      double sum = 0.0;
      for (double& value : a) sum += value = std::exp(value - top);
      for (double& value : a) value /= sum;
      break;
    }
    case RouteKind::kSigmoid:
      for (double& value : a) value = 1.0 / (1.0 + std::exp(-value));
      break;
    case RouteKind::kSqrtSoftplus:
      for (double& value : a) value = std::sqrt(softplus(value));
      break;
  }
  return a;
}

// Keeps the groups with the largest sums of their two best experts. The other groups get −∞, so
// that none of their experts is chosen even if all scores of the best groups are negative.
void keep_best_groups(const RouteArgs& args, std::vector<double>& scores) {
  const auto groups = static_cast<std::size_t>(args.group_count);
  const std::size_t size = scores.size() / groups;
  std::vector<double> value(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<double> members(scores.begin() + static_cast<std::ptrdiff_t>(g * size),
                                scores.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::stable_sort(members.begin(), members.end(), std::greater<>());
    value[g] = members[0] + (size > 1 ? members[1] : 0.0);
  }
  std::vector<std::size_t> order(groups);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return value[a] > value[b]; });
  for (std::size_t i = static_cast<std::size_t>(args.group_top); i < groups; ++i) {
    for (std::size_t e = 0; e < size; ++e) {
      scores[order[i] * size + e] = -std::numeric_limits<double>::infinity();
    }
  }
}

double weight_sum(const RouteArgs& args, const std::vector<double>& chosen) {
  if (args.normalize_power > 0) {
    const double p = args.normalize_power;
    double sum = 0.0;
    for (double value : chosen) sum += std::pow(std::fabs(value), p);
    return std::pow(sum, 1.0 / p);
  }
  const double sum = std::accumulate(chosen.begin(), chosen.end(), 0.0);
  if (args.kind == RouteKind::kSoftmaxTopK) return sum;
  const bool divides = args.normalize && args.kind != RouteKind::kSoftmax;
  return divides ? sum + 1e-20 : 1.0;
}

void route_token(const RouteArgs& args, std::int64_t t) {
  const auto count = static_cast<std::size_t>(args.logits.columns());
  const float* logits = args.logits.row<float>(t);
  const std::vector<double> affinity = affinities(args, logits, count);
  const bool softmax = args.kind == RouteKind::kSoftmax || args.kind == RouteKind::kSoftmaxTopK;
  // Softmax preserves the order of the logits, but may underflow; so compare logits.
  std::vector<double> scores = softmax && args.selection_bias.empty()
                                   ? std::vector<double>(logits, logits + count)
                                   : affinity;
  if (!args.selection_bias.empty()) {
    for (std::size_t e = 0; e < count; ++e) {
      scores[e] += static_cast<double>(args.selection_bias.as<float>()[e]);
    }
  }
  if (args.group_count > 1) keep_best_groups(args, scores);
  std::vector<std::int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  std::vector<double> chosen;
  for (int j = 0; j < args.k; ++j) {
    const std::int32_t expert = order[static_cast<std::size_t>(j)];
    args.experts[t * args.k + j] = expert;
    chosen.push_back(affinity[static_cast<std::size_t>(expert)]);
  }
  const double factor = static_cast<double>(args.multiplier) / weight_sum(args, chosen);
  for (int j = 0; j < args.k; ++j) {
    double weight = chosen[static_cast<std::size_t>(j)] * factor;
    if (!args.expert_scale.empty()) {
      weight *= static_cast<double>(args.expert_scale.as<float>()[args.experts[t * args.k + j]]);
    }
    args.weights.row<float>(t)[j] = static_cast<float>(weight);
  }
}

}  // namespace

void route(ExecContext&, const RouteArgs& args) {
  for (std::int64_t t = 0; t < args.logits.rows(); ++t) route_token(args, t);
}

}  // namespace bl::ref
