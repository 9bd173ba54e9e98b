// What reaches from one choice to the next, and what must not.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "allocation_count.h"
#include "base/error.h"
#include "sample/guidance.h"
#include "sample/philox.h"
#include "sample/sampler_chain.h"
#include "sample/token_log_probability.h"
#include "textbook.h"

namespace bl {
namespace {

using test::TextbookResult;
using test::TextbookRow;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> bell(std::size_t vocab, float spread, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(vocab);
  for (float& x : logits) x = normal(random);
  return logits;
}

SamplingParams everything() {
  SamplingParams p = SamplingParams::plain();
  p.repetition_penalty = 1.1;
  p.frequency_penalty = 0.1;
  p.penalize_prompt = true;
  p.penalty_range = 40;
  p.repetition_decay = 20;
  p.dry_multiplier = 0.8;
  p.logit_bias = {{5, 1.0}};
  p.banned_tokens = {1, 2};
  p.smoothing_factor = 0.1;
  p.top_n_sigma = 4;
  p.top_k = 400;
  p.top_p = 0.99;
  p.top_a = 0.01;
  p.min_p = 0.001;
  p.tfs = 0.99;
  p.typical = 0.98;
  p.mirostat_mode = 2;
  p.mirostat_tau = 4;
  p.min_temp = 0.5;
  p.max_temp = 1.5;
  p.xtc_probability = 0.3;
  p.skew = 0.1;
  p.adaptive_target = 0.5;
  return p;
}

// A text of 300 tokens written by the textbook with its own bookkeeping of the state.
TEST(SamplerState, MirostatAndAdaptiveFollowTheirDefinitionsThroughAText) {
  for (const bool mirostat : {true, false}) {
    SamplingParams params = SamplingParams::plain();
    params.seed = 5;
    if (mirostat) {
      params.mirostat_mode = 2;
      params.mirostat_tau = 3;
      params.mirostat_eta = 0.2;
    } else {
      params.adaptive_target = 0.4;
    }
    SamplerChain chain(params);
    double mu = 2 * params.mirostat_tau;
    double sum = params.adaptive_target / (1 - params.adaptive_decay);
    double weight = 1 / (1 - params.adaptive_decay);
    double surprise = 0;
    constexpr int kTokens = 300;
    for (int i = 0; i < kTokens; ++i) {
      TextbookRow row;
      row.logits = bell(300, 2, static_cast<unsigned>(i));
      row.position = static_cast<std::uint64_t>(i);
      const TextbookResult expected = textbook(row, params, chain.state());
      bool doubtful = false;
      const std::int32_t drawn =
          textbook_draw(expected, uniform_at(params.seed, row.position), doubtful);
      const Pick pick = chain.pick(row.args());
      if (!doubtful) {
        ASSERT_EQ(pick.id, drawn) << i;
      }
      const double p = expected.p[static_cast<std::size_t>(pick.id)];
      surprise -= std::log2(p);
      mu += params.mirostat_eta * (params.mirostat_tau + std::log2(p));
      // Of what the model gave the token, not of what the aim made of that.
      const double own = mirostat ? p : expected.unaimed[static_cast<std::size_t>(pick.id)];
      sum = own + params.adaptive_decay * sum;
      weight = 1 + params.adaptive_decay * weight;
      if (mirostat) {
        ASSERT_NEAR(chain.state().mirostat_mu, mu, 1e-4);
        mu = chain.state().mirostat_mu;
      } else {
        ASSERT_NEAR(chain.state().adaptive_sum, sum, 1e-5);
        ASSERT_NEAR(chain.state().adaptive_weight, weight, 1e-9);
      }
    }
    if (mirostat) {
      EXPECT_NEAR(surprise / kTokens, params.mirostat_tau, 0.3);
    }
  }
}

TEST(SamplerState, AChoiceIsAFunctionOfItsArgumentsAndTheState) {
  SamplerChain chain(everything());
  std::vector<std::vector<float>> rows;
  std::vector<std::int32_t> text;
  std::vector<SamplerState> states;
  for (unsigned i = 0; i < 60; ++i) {
    rows.push_back(bell(2000, 2, i));
    states.push_back(chain.state());
    text.push_back(chain.pick(rows.back(), text, text.size()));
  }
  // Backwards, in a fresh chain whose row another chain uses in between.
  SamplerChain again(everything());
  SamplerChain other(SamplingParams{});
  SampleRow shared;
  for (std::size_t i = text.size(); i-- > 0;) {
    again.restore(states[i]);
    const PickArgs args{.logits = rows[i], .history = std::span(text).first(i), .position = i};
    other.pick({.logits = rows[(i + 7) % rows.size()], .position = 3}, shared);
    SampleRow look;
    again.find_distribution(args, look);
    ASSERT_EQ(again.state(), states[i]);
    ASSERT_EQ(again.pick(args, shared).id, text[i]) << i;
  }
}

TEST(SamplerState, ReportingTheDistributionDoesNotChangeTheChoice) {
  SamplingParams params = SamplingParams::plain();
  SamplerChain chain(params);
  SamplerChain looked(params);
  const std::vector<float> logits = bell(5000, 1, 3);
  SampleRow row;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const PickArgs args{.logits = logits, .position = i};
    looked.find_distribution(args, row);
    ASSERT_EQ(row.size(), logits.size());
    ASSERT_EQ(looked.pick(args, row).id, chain.pick(args).id);
  }
}

// Greedy, from the whole row, from candidates, and where the pick has moved the state.
TEST(SamplerState, WhatAPickWasDrawnFromIsRecalled) {
  SamplingParams greedy = SamplingParams::plain();
  greedy.temperature = 0;
  greedy.banned_tokens = {7};
  for (const SamplingParams& params :
       {greedy, SamplingParams::plain(), SamplingParams{}, everything()}) {
    SamplerChain chain(params);
    SampleRow row;
    SampleRow expected;
    for (unsigned i = 0; i < 20; ++i) {
      const std::vector<float> logits = bell(2000, 2, i);
      const std::vector<std::int32_t> history(i, 3);
      const PickArgs args{.logits = logits, .history = history, .position = i};
      chain.find_distribution(args, expected);
      const Pick pick = chain.pick(args, row);
      chain.recall_distribution(row);
      ASSERT_EQ(row.ids, expected.ids);
      ASSERT_EQ(row.weights, expected.weights);
      ASSERT_TRUE(std::binary_search(row.ids.begin(), row.ids.end(), pick.id));
    }
  }
}

TEST(SamplerState, NothingIsAllocatedPerToken) {
  std::vector<SamplingParams> all(4, everything());
  all[1] = SamplingParams{};
  all[2] = SamplingParams::plain();
  all[3].top_k = 0;
  for (const SamplingParams& params : all) {
    SamplerChain chain(params);
    std::vector<std::vector<float>> rows;
    for (unsigned i = 0; i < 8; ++i) rows.push_back(bell(20000, 2, i));
    std::vector<std::int32_t> text{1, 2, 3, 1, 2, 3, 1, 2};
    const std::vector<std::int32_t> ends{3};
    std::vector<std::uint32_t> mask(20000 / 32, ~0u);
    const auto pick = [&](std::uint64_t i) {
      chain.pick({.logits = rows[i % rows.size()],
                  .history = text,
                  .position = i,
                  .end_tokens = ends,
                  .barred = ends,
                  .mask = mask});
    };
    for (std::uint64_t i = 0; i < 64; ++i) pick(i);
    const long before = test::allocation_count();
    for (std::uint64_t i = 0; i < 64; ++i) pick(i);
    EXPECT_EQ(test::allocation_count(), before);
  }
}

TEST(SamplerState, ABarredEverythingIsAClearError) {
  SamplingParams params = SamplingParams::plain();
  params.allowed_tokens = {3};
  params.banned_tokens = {3};
  SamplerChain chain(params);
  const std::vector<float> logits = bell(40, 1, 1);
  try {
    chain.pick({.logits = logits, .position = 12});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("no token is left to choose at position 12"),
              std::string::npos)
        << error.what();
  }
  const std::vector<std::uint32_t> nothing(2, 0);
  SamplerChain open(SamplingParams{});
  EXPECT_THROW(open.pick({.logits = logits, .mask = nothing}), Error);
}

TEST(SamplerState, OneAllowedTokenIsChosenForCertain) {
  SamplingParams params = everything();
  params.banned_tokens.clear();
  const std::vector<float> logits = bell(64, 1, 1);
  const std::vector<std::uint32_t> only{0, 1u << 9};
  SamplerChain chain(params);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Pick pick = chain.pick({.logits = logits, .position = i, .mask = only});
    EXPECT_EQ(pick.id, 41);
    EXPECT_NEAR(pick.probability, 1, 1e-9);
  }
}

TEST(SamplerState, DamagedLogitsAreAnErrorInEveryChain) {
  for (const SamplingParams& params : {SamplingParams{}, SamplingParams::plain(), everything()}) {
    SamplerChain chain(params);
    for (const float bad : {std::nanf(""), -std::nanf(""), kInf}) {
      for (const std::size_t at : {0u, 31u, 1500u, 2002u}) {
        std::vector<float> logits = bell(2003, 1, 9);
        logits[at] = bad;
        try {
          chain.pick({.logits = logits});
          FAIL() << bad << " at " << at;
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("token " + std::to_string(at)),
                    std::string::npos)
              << error.what();
        }
      }
    }
    EXPECT_THROW(chain.pick({.logits = std::vector<float>(70, -kInf)}), Error);
    // The next good row is served as if nothing had been.
    EXPECT_NO_THROW(chain.pick({.logits = bell(2003, 1, 9)}));
  }
}

TEST(SamplerState, ExtremeLogitsAreServed) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const SamplingParams& params : {SamplingParams{}, SamplingParams::plain(), everything()}) {
    SamplerChain chain(params);
    for (const float top : {kMost, 1e30f, 0.0f, -1e30f, -kMost}) {
      std::vector<float> logits(600, -kMost);
      logits[77] = top;
      logits[500] = -kInf;
      const std::vector<std::int32_t> history{77, 77, 3, 77, 77};
      const Pick pick = chain.pick({.logits = logits, .history = history});
      EXPECT_NE(pick.id, 500);
      EXPECT_TRUE(std::isfinite(pick.probability) && pick.probability > 0);
      EXPECT_TRUE(std::isfinite(chain.state().mirostat_mu));
    }
  }
}

// Where nearly all of the mass goes, what is left of it is a sum, not a difference; and the
// smallest share of that keeps a token.
TEST(SamplerState, CutsOfWhatExclusionHasLeftKeepAToken) {
  const std::vector<float> logits = bell(500, 2, 6);
  for (const char* cut : {"top-p", "typical"}) {
    for (const double threshold : {0.0, 1e-9, 1e-3}) {
      for (const double chance : {0.5, 1.0}) {
        for (const double share : {0.9, 5e-324}) {
          SamplingParams params = SamplingParams::plain();
          params.xtc_probability = chance;
          params.xtc_threshold = threshold;
          params.xtc_ignore_tokens = {7};
          (cut[1] == 'o' ? params.top_p : params.typical) = share;
          params.sampler_order = {"xtc", cut};
          SamplerChain chain(params);
          for (std::uint64_t i = 0; i < 20; ++i) {
            const Pick pick = chain.pick({.logits = logits, .position = i});
            EXPECT_TRUE(pick.probability > 0 && pick.probability <= 1) << cut << threshold;
          }
        }
      }
    }
  }
}

// One kept token is not the likeliest where something before the cut has taken that away.
TEST(SamplerState, AnOrderOfOnesOwnHoldsWhereOneTokenIsKept) {
  std::vector<float> logits(50, 0.0f);
  logits[3] = 9;
  logits[4] = 8;
  for (const bool by_count : {true, false}) {
    SamplingParams params = SamplingParams::plain();
    params.xtc_probability = 1;
    (by_count ? params.top_k : params.max_tokens) = 1;
    if (!by_count) params.top_p = 0;
    EXPECT_EQ(SamplerChain(params).pick({.logits = logits}).id, 3);
    params.sampler_order = {"xtc", by_count ? "top-k" : "top-p"};
    EXPECT_EQ(SamplerChain(params).pick({.logits = logits}).id, 4);
    params.temperature = 0;
    EXPECT_EQ(SamplerChain(params).pick({.logits = logits}).id, 3);
  }
}

TEST(SamplerState, ExcludingAllButTheLeastLikelyLeavesATokenThatCanBe) {
  SamplingParams params = SamplingParams::plain();
  params.xtc_threshold = 0;
  std::vector<float> logits = bell(500, 2, 6);
  for (std::size_t i = 0; i < 250; ++i) logits[i * 2] = -500;  // no weight left in float
  for (const double chance : {1.0, 0.9999999}) {
    params.xtc_probability = chance;
    SamplerChain chain(params);
    for (std::uint64_t i = 0; i < 50; ++i) {
      const Pick pick = chain.pick({.logits = logits, .position = i});
      EXPECT_EQ(pick.id % 2, 1);
      EXPECT_TRUE(pick.probability > 0 && pick.probability <= 1);
    }
  }
}

TEST(SamplerState, ALongTextOfOneTokenIsServedInTime) {
  SamplingParams params = everything();
  params.dry_range = 0;
  params.penalty_range = -1;
  const std::vector<std::int32_t> history(200000, 7);
  const std::vector<float> logits = bell(1000, 1, 2);
  SamplerChain chain(params);
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_NE(chain.pick({.logits = logits, .history = history, .position = i}).id, 7);
  }
}

TEST(TopLogProbabilities, OfRowsAndOfCandidates) {
  const std::vector<float> logits = bell(3000, 2, 4);
  TextbookRow row;
  row.logits = logits;
  const TextbookResult raw = textbook(row, SamplingParams::plain());
  TopLogProbabilities top;
  top.find(logits, 20);
  ASSERT_EQ(top.top().size(), 20u);
  std::vector<double> sorted = raw.p;
  std::sort(sorted.rbegin(), sorted.rend());
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_NEAR(top.top()[i].value, std::log(sorted[i]), 1e-5);
    EXPECT_EQ(raw.p[static_cast<std::size_t>(top.top()[i].id)], sorted[i]);
  }
  EXPECT_NEAR(top.of(55), std::log(raw.p[55]), 1e-5);
  top.find(logits, 100000);
  EXPECT_EQ(top.top().size(), logits.size());

  SamplingParams params = SamplingParams::plain();
  params.top_k = 7;
  params.temperature = 0.5;
  const TextbookResult after = textbook(row, params);
  SampleRow candidates;
  SamplerChain chain(params);
  const PickArgs args = row.args();
  chain.find_distribution(args, candidates);
  top.find(candidates, 20);
  ASSERT_EQ(top.top().size(), 7u);
  for (const TokenLogProbability& entry : top.top()) {
    EXPECT_NEAR(entry.value, std::log(after.p[static_cast<std::size_t>(entry.id)]), 1e-5);
    EXPECT_EQ(top.of(entry.id), entry.value);
  }
  const auto cut =
      static_cast<std::int32_t>(std::min_element(logits.begin(), logits.end()) - logits.begin());
  EXPECT_EQ(top.of(cut), -std::numeric_limits<double>::infinity());
}

TEST(Guidance, MixesLogProbabilities) {
  std::vector<float> a = bell(500, 2, 1);
  std::vector<float> b = bell(500, 2, 2);
  a[3] = -kInf;
  b[4] = -kInf;
  TextbookRow row_a, row_b;
  row_a.logits = a;
  row_b.logits = b;
  const std::vector<double> p = textbook(row_a, SamplingParams::plain()).p;
  const std::vector<double> q = textbook(row_b, SamplingParams::plain()).p;
  std::vector<float> out(500);
  mix_guidance(a, b, 1.7, out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i == 3 || i == 4) {
      EXPECT_EQ(out[i], -kInf);
    } else {
      EXPECT_NEAR(static_cast<double>(out[i]), 1.7 * std::log(p[i]) - 0.7 * std::log(q[i]), 1e-4);
    }
  }
  mix_guidance(a, b, 1, a);  // in place
  EXPECT_NEAR(static_cast<double>(a[10]), std::log(p[10]), 1e-5);
}

}  // namespace
}  // namespace bl
