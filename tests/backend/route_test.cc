// Routers against a textbook version that sorts and divides in long double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/device.h"

namespace bl::test {
namespace {

struct RouteCase {
  std::int64_t experts;
  int k;
  RouteKind kind;
  bool biased = false;
  bool normalize = true;
  float multiplier = 1.0f;
  float power = 0.0f;
  int groups = 1;
  int group_top = 1;
  bool scaled = false;  // a factor for each expert
};

struct Routed {
  std::vector<std::int32_t> experts;
  std::vector<double> weights;
};

Routed textbook(const RouteCase& c, const float* logits, const std::vector<float>& bias,
                const std::vector<float>& scale) {
  using Real = long double;
  const auto n = static_cast<std::size_t>(c.experts);
  std::vector<Real> affinity(n);
  Real sum = 0;
  for (std::size_t e = 0; e < n; ++e) sum += std::exp(static_cast<Real>(logits[e]));
  for (std::size_t e = 0; e < n; ++e) {
    const Real x = static_cast<Real>(logits[e]);
    if (c.kind == RouteKind::kSigmoid) {
      affinity[e] = 1 / (1 + std::exp(-x));
    } else if (c.kind == RouteKind::kSqrtSoftplus) {
      affinity[e] = std::sqrt(std::log1p(std::exp(x)));
    } else {
      affinity[e] = std::exp(x) / sum;
    }
  }
  const bool softmax = c.kind == RouteKind::kSoftmax || c.kind == RouteKind::kSoftmaxTopK;
  std::vector<Real> score(n);
  for (std::size_t e = 0; e < n; ++e) {
    score[e] = (softmax && !c.biased ? static_cast<Real>(logits[e]) : affinity[e]) +
               (c.biased ? static_cast<Real>(bias[e]) : 0);
  }
  if (c.groups > 1) {
    const std::size_t size = n / static_cast<std::size_t>(c.groups);
    std::vector<std::pair<Real, std::size_t>> groups;
    for (std::size_t g = 0; g < static_cast<std::size_t>(c.groups); ++g) {
      std::vector<Real> members(score.begin() + static_cast<long>(g * size),
                                score.begin() + static_cast<long>((g + 1) * size));
      std::sort(members.rbegin(), members.rend());
      groups.emplace_back(-(members[0] + members[1]), g);
    }
    std::sort(groups.begin(), groups.end());
    for (std::size_t i = static_cast<std::size_t>(c.group_top); i < groups.size(); ++i) {
      for (std::size_t e = 0; e < size; ++e) score[groups[i].second * size + e] = 0;
    }
  }
  std::vector<std::int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return score[static_cast<std::size_t>(a)] > score[static_cast<std::size_t>(b)];
  });
  Routed routed;
  Real total = 0;
  Real norm = 0;
  for (int j = 0; j < c.k; ++j) {
    routed.experts.push_back(order[static_cast<std::size_t>(j)]);
    const Real w = affinity[static_cast<std::size_t>(routed.experts.back())];
    total += w;
    norm += std::pow(w, static_cast<Real>(c.power));
  }
  Real divisor = 1;
  if (c.power > 0) {
    divisor = std::pow(norm, 1 / static_cast<Real>(c.power));
  } else if (c.kind == RouteKind::kSoftmaxTopK || (!softmax && c.normalize)) {
    divisor = total;
  }
  for (const std::int32_t e : routed.experts) {
    const auto expert = static_cast<std::size_t>(e);
    const Real factor = c.scaled ? static_cast<Real>(scale[expert]) : 1;
    routed.weights.push_back(
        static_cast<double>(affinity[expert] / divisor * static_cast<Real>(c.multiplier) * factor));
  }
  return routed;
}

std::vector<RouteCase> route_cases() {
  using K = RouteKind;
  return {{4, 2, K::kSoftmaxTopK},
          {8, 1, K::kSoftmax},
          {16, 4, K::kSoftmax, false, true, 1.0f, 1.0f},
          {16, 4, K::kSoftmax, false, true, 1.0f, 2.0f},
          {60, 4, K::kSoftmax},
          {128, 8, K::kSoftmaxTopK, true},
          {128, 8, K::kSigmoid, true, true, 2.5f},
          {7, 7, K::kSigmoid, false, false},
          {64, 6, K::kSigmoid, true, true, 1.0f, 0.0f, 8, 3},
          {33, 5, K::kSqrtSoftplus, true, true, 1.5f},
          {128, 40, K::kSoftmaxTopK, false, true, 1.0f, 0.0f, 1, 1, true},
          {12, 12, K::kSigmoid, true, true, 0.5f, 0.0f, 3, 3, true}};
}

class RouteOp : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Backends, RouteOp, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

TEST_P(RouteOp, PicksAndWeighs) {
  Device device(GetParam());
  Random random(5);
  const std::int64_t tokens = 9;
  for (const RouteCase& c : route_cases()) {
    const std::vector<float> logits = random.normal(tokens * c.experts, 2.0f);
    const std::vector<float> bias = random.normal(c.experts, 0.3f);
    const std::vector<float> scale = random.normal(c.experts, 1.0f);
    const auto slots = static_cast<std::size_t>(tokens * c.k);
    auto* experts = const_cast<std::int32_t*>(device.put(std::vector<std::int32_t>(slots)));
    const TensorView weights = device.put(std::vector<float>(slots), {tokens, c.k});
    device.ops().route(device.context(),
                       {.logits = device.put(logits, {tokens, c.experts}),
                        .selection_bias = c.biased ? device.put(bias, {c.experts}) : TensorView{},
                        .kind = c.kind,
                        .normalize = c.normalize,
                        .multiplier = c.multiplier,
                        .normalize_power = c.power,
                        .group_count = c.groups,
                        .group_top = c.group_top,
                        .expert_scale = c.scaled ? device.put(scale, {c.experts}) : TensorView{},
                        .experts = experts,
                        .weights = weights,
                        .k = c.k});
    Routed expected;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const Routed one = textbook(c, logits.data() + t * c.experts, bias, scale);
      expected.experts.insert(expected.experts.end(), one.experts.begin(), one.experts.end());
      expected.weights.insert(expected.weights.end(), one.weights.begin(), one.weights.end());
    }
    EXPECT_EQ(device.get(experts, slots), expected.experts) << c.experts << " experts";
    EXPECT_LE(worst_difference(device.get(weights), expected.weights), 2e-6)
        << c.experts << " experts";
  }
}

TEST_P(RouteOp, TiesGoToTheLowerIndex) {
  Device device(GetParam());
  for (const RouteKind kind : {RouteKind::kSoftmaxTopK, RouteKind::kSigmoid}) {
    auto* experts = const_cast<std::int32_t*>(device.put(std::vector<std::int32_t>(3)));
    device.ops().route(device.context(),
                       {.logits = device.put({1.0f, 2.0f, 2.0f, 1.0f, 2.0f, 1.0f}, {1, 6}),
                        .selection_bias = {},
                        .kind = kind,
                        .experts = experts,
                        .weights = device.put(std::vector<float>(4), {1, 4}),
                        .k = 3});
    EXPECT_EQ(device.get(experts, 3), (std::vector<std::int32_t>{1, 2, 4}));
  }
}

}  // namespace
}  // namespace bl::test
