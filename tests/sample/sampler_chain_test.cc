#include "sample/sampler_chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "sample/log_probability.h"

namespace bl {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams open_params() {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 0;
  params.top_p = 1;
  params.seed = 11;
  return params;
}

std::vector<float> random_logits(std::size_t vocab, float spread, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(vocab);
  for (float& x : logits) x = normal(random);
  return logits;
}

// The definition, in double, sorting everything: what the chain must agree with.
std::vector<double> textbook(std::vector<float> logits, const SamplingParams& params,
                             const std::vector<std::int32_t>& history) {
  std::vector<std::int32_t> distinct = history;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (const std::int32_t id : distinct) {
    float& x = logits[static_cast<std::size_t>(id)];
    x = x > 0 ? x / static_cast<float>(params.repetition_penalty)
              : x * static_cast<float>(params.repetition_penalty);
  }
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (params.top_k > 0) {
    order.resize(std::min(order.size(), static_cast<std::size_t>(params.top_k)));
  }
  std::vector<double> weights;
  for (const std::size_t id : order) {
    weights.push_back(
        std::exp(static_cast<double>(logits[id] - logits[order[0]]) / params.temperature));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double mass = 0;
  std::size_t kept = 0;
  while (kept < weights.size() && (kept == 0 || mass < params.top_p * total)) {
    mass += weights[kept++];
  }
  std::vector<double> probabilities(logits.size(), 0.0);
  double final_total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    if (weights[i] < params.min_p * weights[0]) continue;
    probabilities[order[i]] = weights[i];
    final_total += weights[i];
  }
  for (double& p : probabilities) p /= final_total;
  return probabilities;
}

// Draws many tokens and compares their frequencies with the textbook's by a χ² bound.
void expect_distribution(const std::vector<float>& logits, const SamplingParams& params,
                         const std::vector<std::int32_t>& history = {}) {
  const std::vector<double> expected = textbook(logits, params, history);
  SamplerChain chain(params);
  constexpr int kDraws = 40000;
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    ++counts[static_cast<std::size_t>(chain.pick(logits, history, static_cast<std::uint64_t>(i)))];
  }
  double chi2 = 0;
  int cells = 0;
  double rest_expected = 0;
  int rest = 0;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    if (expected[id] == 0) {
      ASSERT_EQ(counts[id], 0) << "token " << id << " should have been cut";
    } else if (expected[id] * kDraws < 10) {
      rest_expected += expected[id] * kDraws;
      rest += counts[id];
    } else {
      const double d = counts[id] - expected[id] * kDraws;
      chi2 += d * d / (expected[id] * kDraws);
      ++cells;
    }
  }
  if (rest_expected > 10) {
    chi2 += (rest - rest_expected) * (rest - rest_expected) / rest_expected;
    ++cells;
  }
  const double freedom = std::max(1, cells - 1);
  EXPECT_LT(chi2, freedom + 5 * std::sqrt(2 * freedom)) << cells << " cells";
}

TEST(SamplerChain, GreedyIsTheFirstOfTheLargest) {
  SamplingParams params;
  params.temperature = 0;
  std::vector<float> logits = random_logits(1003, 1, 3);
  logits[777] = 9;
  logits[900] = 9;
  logits[1002] = 9;
  SamplerChain chain(params);
  EXPECT_EQ(chain.pick(logits, {}, 0), 777);
  params = open_params();
  params.top_k = 1;
  EXPECT_EQ(SamplerChain(params).pick(logits, {}, 5), 777);
}

TEST(SamplerChain, PlainSoftmax) {
  expect_distribution(random_logits(200, 1.5f, 1), open_params());
}

TEST(SamplerChain, Temperature) {
  SamplingParams params = open_params();
  params.temperature = 0.6;
  expect_distribution(random_logits(200, 1.5f, 2), params);
  params.temperature = 3;
  expect_distribution(random_logits(200, 1.5f, 2), params);
}

TEST(SamplerChain, TopKKeepsExactlyK) {
  SamplingParams params = open_params();
  params.top_k = 17;
  expect_distribution(random_logits(2000, 1, 3), params);
}

TEST(SamplerChain, TopKTiesGoToTheLowestIds) {
  SamplingParams params = open_params();
  params.top_k = 3;
  const std::vector<float> logits(4000, 1.0f);
  SamplerChain chain(params);
  for (std::uint64_t i = 0; i < 200; ++i) EXPECT_LT(chain.pick(logits, {}, i), 3);
}

TEST(SamplerChain, TopPKeepsTheCrossingToken) {
  SamplingParams params = open_params();
  params.top_p = 0.8;
  // .70 .20 .06 .03 .01: the nucleus of 0.8 is the first two.
  std::vector<float> logits;
  for (const double p : {.06, .70, .03, .20, .01})
    logits.push_back(static_cast<float>(std::log(p)));
  expect_distribution(logits, params);
  expect_distribution(random_logits(1200, 2, 4), params);
}

TEST(SamplerChain, TopPOfAFlatBigVocabulary) {
  SamplingParams params = open_params();
  params.top_p = 0.5;
  const std::vector<float> logits = random_logits(20000, 0.01f, 5);
  SamplerChain chain(params);
  const std::vector<double> expected = textbook(logits, params, {});
  for (std::uint64_t i = 0; i < 300; ++i) {
    EXPECT_GT(expected[static_cast<std::size_t>(chain.pick(logits, {}, i))], 0.0);
  }
}

TEST(SamplerChain, MinP) {
  SamplingParams params = open_params();
  params.min_p = 0.2;
  expect_distribution(random_logits(300, 1, 6), params);
}

TEST(SamplerChain, EverythingTogether) {
  SamplingParams params = open_params();
  params.temperature = 0.9;
  params.top_k = 40;
  params.top_p = 0.9;
  params.min_p = 0.05;
  params.repetition_penalty = 1.3;
  const std::vector<float> logits = random_logits(2000, 2, 7);
  std::vector<std::int32_t> history{5, 5, 900, 1999};
  history.push_back(
      static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  expect_distribution(logits, params, history);
}

TEST(SamplerChain, ChainsShareParametersAndHaveSeedsOfTheirOwn) {
  const std::vector<float> logits = random_logits(500, 1, 8);
  SamplingParams params = open_params();
  params.xtc_probability = 0.5;
  params.xtc_threshold = 0.001;
  params.xtc_random = true;
  const auto shared = std::make_shared<const SamplingParams>(params);
  std::size_t equal = 0;
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    params.seed = seed;
    SamplerChain own(params);
    SamplerChain one(shared, seed);
    EXPECT_EQ(one.pick(logits, {}, 3), own.pick(logits, {}, 3));
    EXPECT_EQ(one.seed(), seed);
    equal += one.pick(logits, {}, 3) == SamplerChain(shared, 0).pick(logits, {}, 3) ? 1 : 0;
  }
  EXPECT_LT(equal, 100u);
}

TEST(SamplerChain, SameSeedAndPositionSameToken) {
  const std::vector<float> logits = random_logits(500, 1, 8);
  SamplerChain a(open_params());
  SamplerChain b(open_params());
  std::vector<std::int32_t> forward, backward;
  for (std::uint64_t i = 0; i < 50; ++i) forward.push_back(a.pick(logits, {}, i));
  for (std::uint64_t i = 50; i-- > 0;) backward.push_back(b.pick(logits, {}, i));
  std::reverse(backward.begin(), backward.end());
  EXPECT_EQ(forward, backward);
  SamplingParams other = open_params();
  other.seed = 12;
  SamplerChain c(other);
  std::vector<std::int32_t> changed;
  for (std::uint64_t i = 0; i < 50; ++i) changed.push_back(c.pick(logits, {}, i));
  EXPECT_NE(forward, changed);
}

TEST(SamplerChain, ImpossibleTokensAreNeverDrawn) {
  std::vector<float> logits(64, -kInfinity);
  logits[9] = 0;
  logits[40] = 0.5f;
  SamplerChain chain(open_params());
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::int32_t id = chain.pick(logits, {}, i);
    EXPECT_TRUE(id == 9 || id == 40);
  }
}

TEST(SamplerChain, DamagedLogitsAreAnError) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    for (const std::size_t at : {0u, 31u, 99u}) {
      std::vector<float> logits = random_logits(100, 1, 9);
      logits[at] = bad;
      for (const double temperature : {0.0, 1.0}) {
        SamplingParams params = open_params();
        params.temperature = temperature;
        SamplerChain chain(params);
        try {
          chain.pick(logits, {}, 0);
          FAIL() << "accepted " << bad;
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("token " + std::to_string(at)),
                    std::string::npos)
              << error.what();
        }
      }
    }
  }
  SamplerChain chain(open_params());
  EXPECT_THROW(chain.pick(std::vector<float>(40, -kInfinity), {}, 0), Error);
}

TEST(SamplingParams, WrongValuesOfTheFirstFieldsAreNamed) {
  const auto expect_wrong = [](auto change, const char* name) {
    SamplingParams params;
    change(params);
    try {
      validate(params);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  };
  EXPECT_NO_THROW(validate(SamplingParams{}));
  expect_wrong([](SamplingParams& p) { p.temperature = -1; }, "temperature");
  expect_wrong([](SamplingParams& p) { p.temperature = std::nan(""); }, "temperature");
  expect_wrong([](SamplingParams& p) { p.top_p = 1.5; }, "top_p");
  expect_wrong([](SamplingParams& p) { p.min_p = -0.1; }, "min_p");
  expect_wrong([](SamplingParams& p) { p.top_k = -4; }, "top_k");
  expect_wrong([](SamplingParams& p) { p.repetition_penalty = 0; }, "repetition_penalty");
}

TEST(LogProbability, AgreesWithTheDefinition) {
  const std::vector<float> a = random_logits(49157, 3, 10);
  std::vector<float> b = a;
  const std::vector<float> noise = random_logits(a.size(), 0.3f, 11);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] += noise[i] + 5;
  const auto norm = [](const std::vector<float>& x) {
    double sum = 0;
    for (const float v : x) sum += std::exp(static_cast<double>(v));
    return std::log(sum);
  };
  const double norm_a = norm(a);
  const double norm_b = norm(b);
  double kl = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double log_p = static_cast<double>(a[i]) - norm_a;
    kl += std::exp(log_p) * (log_p - (static_cast<double>(b[i]) - norm_b));
  }
  EXPECT_NEAR(log_sum_exp(a), norm_a, 1e-6);
  EXPECT_NEAR(log_probability(a, 123), static_cast<double>(a[123]) - norm_a, 1e-6);
  EXPECT_NEAR(kl_divergence(a, b), kl, 1e-6);
  EXPECT_NEAR(kl_divergence(a, a), 0, 1e-9);
}

}  // namespace
}  // namespace bl
