// Of rows that are wider than the vocabulary.

#include "engine/row_sampler.h"

#include <gtest/gtest.h>

#include <cmath>

namespace bl {
namespace {

TEST(RowSampler, WhatStandsForNoTextIsNeverChosen) {
  std::vector<float> logits(80, 0.0f);
  logits[70] = 20;  // beyond the tokenizer's 64
  logits[5] = 1;
  std::vector<float> negative = logits;
  RowSampler rows(nullptr, 64);
  for (const double temperature : {0.0, 1.0}) {
    for (const bool guided : {false, true}) {
      SamplingParams params = SamplingParams::plain();
      params.temperature = temperature;
      params.cfg_scale = guided ? 1.5 : 1;
      SamplerChain chain(params);
      for (int i = 0; i < 200; ++i) {
        const std::vector<std::int32_t> history(static_cast<std::size_t>(i + 1), 1);
        RowTask task;
        task.logits = logits;
        if (guided) task.negative = negative;
        task.sampler = &chain;
        task.history = history;
        task.alternatives = 2;
        rows.run({&task, 1});
        ASSERT_FALSE(task.error) << task.error->what();
        ASSERT_LT(task.id, 64);
        if (temperature == 0) {
          EXPECT_EQ(task.id, 5);
        }
        ASSERT_EQ(task.logprobs.best.size(), 2u);
        EXPECT_EQ(task.logprobs.best[0].id, 5);
        // Of the tokens that may come.
        EXPECT_NEAR(task.logprobs.best[0].logprob, 1 - std::log(63 + std::exp(1.0)), 1e-5);
      }
    }
  }
}

// A prompt may hold such a token: it has no probability.
TEST(RowSampler, APromptMayHoldWhatIsNeverChosen) {
  const std::vector<float> logits(80, 0.0f);
  RowSampler rows(nullptr, 64);
  RowTask task;
  task.logits = logits;
  task.known = 75;
  task.alternatives = 1;
  rows.run({&task, 1});
  ASSERT_FALSE(task.error);
  EXPECT_EQ(task.id, 75);
  EXPECT_TRUE(std::isinf(task.logprobs.token.logprob));
}

}  // namespace
}  // namespace bl
