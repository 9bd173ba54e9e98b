#include "engine/device_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "backend/registry.h"
#include "cache/page_pool.h"
#include "engine/engine.h"
#include "engine/step_runner.h"
#include "sample/chi_square.h"
#include "sample/sampler_chain.h"
#include "sample/textbook.h"
#include "sample/token_log_probability.h"
#include "tiny_model.h"

namespace bl::test {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// A step without a model: rows of logits, and texts that they stand behind.
class DeviceRowsTest : public testing::Test {
 protected:
  DeviceRowsTest() : backend_(open_backend("ref", {.threads = 1})) {
    scratch_ = Arena(backend_->allocate(sample_input_bytes(SampleLimits::kRows)));
    context_ = backend_->context(scratch_);
  }

  // Row i of `logits` [rows, vocab] stands behind token i of the items' new ones.
  StepOutput run(std::span<const StepItem> items, std::vector<float>& logits, std::int64_t rows) {
    const auto vocab = static_cast<std::int64_t>(logits.size()) / rows;
    scratch_.release_to(0);
    rows_.collect(items, backend_->ops(), {vocab, tokens_ > 0 ? tokens_ : vocab});
    StepOutput output;
    if (!rows_.any()) return output;
    fetched_.resize(static_cast<std::size_t>(2 * rows));
    rows_.fetch_to(fetched_, {});
    rows_.place(context_, rows);
    rows_.enqueue(context_, *backend_, view_of(logits.data(), {rows, vocab}));
    rows_.read(output);
    return output;
  }

  std::int64_t tokens_ = 0;  // that may be chosen; 0: all

  std::vector<float> random_row(std::int64_t vocab) {
    std::normal_distribution<float> normal(0, static_cast<float>(1 + random_() % 4));
    std::vector<float> row(static_cast<std::size_t>(vocab));
    for (float& x : row) x = normal(random_);
    const auto at = [&]() -> float& { return row[random_() % row.size()]; };
    if (random_() % 2 == 0) {
      for (int i = 0; i < 40; ++i) at() = 12 - 0.2f * static_cast<float>(i);
    }
    for (std::uint64_t i = random_() % 4; i > 0; --i) at() = row[0];
    if (random_() % 4 == 0) at() = kMinusInfinity;
    return row;
  }

  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }
  // Whatever device_sampleable() lets pass.
  SamplingParams random_params(std::int64_t vocab) {
    SamplingParams p;
    p.seed = random_();
    p.temperature = one_of({1.0, 0.7, 1.3, 0.2, 0.0});
    p.top_k = one_of<std::int64_t>({0, 1, 20, 50, vocab, 3 * vocab});
    p.top_p = one_of({1.0, 0.95, 0.8, 0.3, 0.0});
    p.min_p = one_of({0.0, 0.0, 0.1, 1.0});
    p.repetition_penalty = one_of({1.0, 1.0, 1.2});
    p.presence_penalty = one_of({0.0, 0.0, 0.5});
    p.frequency_penalty = one_of({0.0, 0.0, 0.25});
    p.penalty_range = one_of<std::int64_t>({-1, 0, 7});
    p.penalize_prompt = one_of({true, false});
    const auto id = [&] {
      return static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(vocab));
    };
    if (random_() % 4 == 0) p.logit_bias = {{id(), 3.5}};
    if (random_() % 4 == 0) p.banned_tokens = {id(), id(), static_cast<std::int32_t>(vocab)};
    p.ban_end_tokens = random_() % 4 == 0;
    return p;
  }
  std::vector<std::int32_t> random_text(std::int64_t vocab, std::size_t tokens) {
    std::vector<std::int32_t> ids(tokens);
    // Some are no tokens of the head.
    for (std::int32_t& id : ids) {
      id = static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(vocab + 2));
    }
    return ids;
  }

  std::unique_ptr<Backend> backend_;
  Arena scratch_;
  ExecContext context_;
  PagePool pool_{4};
  DeviceRows rows_;
  std::vector<std::int32_t> fetched_;
  std::mt19937_64 random_{17};
};

TEST_F(DeviceRowsTest, ChooseWhatTheChainChooses) {
  int compared = 0;
  for (const std::int64_t vocab : {1, 2, 5, 100, 1000, 32000, 130000}) {
    const int steps = vocab < 2000 ? 300 : 40;
    for (int i = 0; i < steps; ++i) {
      // A text whose last token is new, and one of which three are, as where guesses are verified.
      Sequence one(pool_);
      Sequence many(pool_);
      one.ids = random_text(vocab, 1 + random_() % 30);
      one.cached = static_cast<std::int64_t>(one.ids.size()) - 1;
      many.ids = random_text(vocab, 10);
      many.cached = 7;
      const SamplingParams first = random_params(vocab);
      const SamplingParams second = random_params(vocab);
      ASSERT_TRUE(device_sampleable(first) && device_sampleable(second));
      const auto prompt = static_cast<std::int64_t>(random_() % one.ids.size());
      constexpr std::int64_t kPromptOfMany = 5;
      const std::vector<std::int32_t> end_tokens = random_text(vocab, random_() % 5);
      const std::vector<StepItem> items{{.sequence = &one,
                                         .count = 1,
                                         .logits = LogitRows::kLast,
                                         .sampling = &first,
                                         .seed = first.seed,
                                         .prompt = prompt,
                                         .end_tokens = end_tokens},
                                        {.sequence = &many,
                                         .count = 3,
                                         .logits = LogitRows::kAll,
                                         .sampling = &second,
                                         .seed = second.seed,
                                         .prompt = kPromptOfMany,
                                         .end_tokens = end_tokens}};
      std::vector<float> logits;
      for (int r = 0; r < 4; ++r) {
        const std::vector<float> row = random_row(vocab);
        logits.insert(logits.end(), row.begin(), row.end());
      }
      const StepOutput output = run(items, logits, 4);
      ASSERT_EQ(output.ids.size(), 4u);
      for (std::size_t r = 0; r < 4; ++r) {
        const std::vector<std::int32_t>& ids = r == 0 ? one.ids : many.ids;
        const auto history = std::span(ids).first(r == 0 ? ids.size() : 7 + r);
        const auto row = std::span(logits).subspan(r * static_cast<std::size_t>(vocab),
                                                   static_cast<std::size_t>(vocab));
        SamplerChain chain(r == 0 ? first : second);
        std::int32_t expected = -1;
        try {
          const auto length = static_cast<std::int64_t>(history.size());
          expected = chain
                         .pick({.logits = row,
                                .history = history,
                                .position = history.size(),
                                .generated = length - (r == 0 ? prompt : kPromptOfMany),
                                .end_tokens = end_tokens})
                         .id;
        } catch (const Error&) {
          // All are barred: the row is the host's.
        }
        ASSERT_EQ(output.ids[r], expected) << "vocab " << vocab << " step " << i << " row " << r;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 5000);
}

TEST_F(DeviceRowsTest, RowsThatTheHostMustSee) {
  const std::int64_t vocab = 50;
  SamplingParams params = SamplingParams::plain();
  Sequence sequence(pool_);
  sequence.ids = {1, 2, 3, 4};
  std::vector<float> logits(static_cast<std::size_t>(4 * vocab), 0.5f);
  logits[50 + 7] = std::numeric_limits<float>::quiet_NaN();
  std::fill_n(logits.begin() + 100, 50, kMinusInfinity);
  logits[150 + 9] = std::numeric_limits<float>::infinity();
  const StepItem item{.sequence = &sequence,
                      .count = 4,
                      .logits = LogitRows::kAll,
                      .sampling = &params,
                      .seed = params.seed};
  const StepOutput output = run({&item, 1}, logits, 4);
  EXPECT_GE(output.ids[0], 0);
  EXPECT_EQ(std::vector<std::int32_t>(output.ids.begin() + 1, output.ids.end()),
            (std::vector<std::int32_t>{-1, -1, -1}));
  // A penalty does not make an infinity of it that could pass.
  params.repetition_penalty = 1.5;
  sequence.ids = {9, 9, 9, 9};
  EXPECT_EQ(run({&item, 1}, logits, 4).ids[3], -1);
}

TEST_F(DeviceRowsTest, LogProbabilitiesAreThoseOfTheModel) {
  const std::int64_t vocab = 5000;
  SamplingParams params;
  params.temperature = 0.6;
  params.logprobs = true;
  ASSERT_TRUE(device_sampleable(params));
  TopLogProbabilities expected;
  for (int i = 0; i < 50; ++i) {
    params.seed = random_();
    if (i > 40) params.temperature = 0;
    Sequence sequence(pool_);
    sequence.ids = {1};
    std::vector<float> logits = random_row(vocab);
    const StepItem item{.sequence = &sequence,
                        .count = 1,
                        .logits = LogitRows::kLast,
                        .sampling = &params,
                        .seed = params.seed,
                        .log_probabilities = true};
    const StepOutput output = run({&item, 1}, logits, 1);
    ASSERT_TRUE(output.chose(0));
    expected.find(logits, 1);
    EXPECT_NEAR(output.log_probability(0), expected.of(output.ids[0]), 2e-6);
  }
}

TEST_F(DeviceRowsTest, DrawsFollowTheTextbook) {
  const std::int64_t vocab = 60;
  SamplingParams params = SamplingParams::plain();
  params.temperature = 1.4;
  params.top_k = 30;
  params.top_p = 0.9;
  params.min_p = 0.02;
  params.frequency_penalty = 0.3;
  params.seed = 3;
  std::vector<float> logits = random_row(vocab);
  Sequence sequence(pool_);
  sequence.ids = random_text(vocab - 2, 12);
  const TextbookResult expected = textbook({.logits = logits,
                                            .history = sequence.ids,
                                            .end_tokens = {},
                                            .barred = {},
                                            .mask = {},
                                            .generated = 7},
                                           params);
  ASSERT_FALSE(expected.doubtful);
  constexpr int kDraws = 60000;
  std::vector<int> counts(static_cast<std::size_t>(vocab));
  for (int i = 0; i < kDraws; ++i) {
    params.seed = static_cast<std::uint64_t>(i);
    sequence.cached = 11;
    const StepItem item{.sequence = &sequence,
                        .count = 1,
                        .logits = LogitRows::kLast,
                        .sampling = &params,
                        .seed = params.seed,
                        .prompt = 5};
    ++counts[static_cast<std::size_t>(run({&item, 1}, logits, 1).ids[0])];
  }
  expect_frequencies(counts, expected.p, kDraws);
}

// A row may be wider than the vocabulary is.
TEST_F(DeviceRowsTest, WhatStandsForNoTextIsNeverChosen) {
  tokens_ = 61;
  std::vector<float> logits(2 * 80, 0.0f);
  for (const std::size_t at : {61u, 79u, 141u, 159u}) logits[at] = 30;
  for (const double temperature : {0.0, 1.0}) {
    SamplingParams params = SamplingParams::plain();
    params.temperature = temperature;
    params.logit_bias = {{.id = 70, .bias = 5}};
    Sequence sequence(pool_);
    for (std::int32_t i = 0; i < 50; ++i) {
      sequence.ids.assign(static_cast<std::size_t>(i) + 2, 1);
      sequence.cached = i;
      const StepItem item{.sequence = &sequence,
                          .count = 2,
                          .logits = LogitRows::kAll,
                          .sampling = &params,
                          .seed = 3};
      const StepOutput output = run({&item, 1}, logits, 2);
      for (const std::int32_t id : output.ids) {
        EXPECT_TRUE(id >= 0 && id < 61) << id;
        if (temperature == 0) {
          EXPECT_EQ(id, 0);
        }
      }
    }
  }
}

// Whether rows are chosen there depends on nothing but what is asked.
TEST_F(DeviceRowsTest, KeysTellStepsApart) {
  SamplingParams greedy;
  greedy.temperature = 0;
  SamplingParams drawn;
  SamplingParams penalised;
  penalised.presence_penalty = 1;
  Sequence sequence(pool_);
  sequence.ids = {1, 2};
  const auto key = [&](const SamplingParams* params) {
    const StepItem item{
        .sequence = &sequence, .count = 1, .logits = LogitRows::kLast, .sampling = params};
    OpTable ops = backend_->ops();
    ops.argmax = [](ExecContext&, const ArgmaxArgs&) {};
    rows_.collect({&item, 1}, ops, {100, 100});
    return rows_.key();
  };
  const std::vector<std::uint64_t> keys{key(nullptr), key(&greedy), key(&drawn), key(&penalised)};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(keys[i], keys[j]);
  }
  EXPECT_EQ(keys[0], 0u);
}

// --- on a model ---

class DeviceSampling : public testing::Test {
 protected:
  static std::unique_ptr<ModelSession> load() {
    SessionOptions options;
    options.model = make_tiny_model("device-sampling");
    options.backend = "ref";
    options.threads = 2;
    options.context = 512;
    options.sequences = 8;
    return ModelSession::load(options);
  }
};

TEST_F(DeviceSampling, OnlyRowsOfTheHostHaveLogits) {
  const auto session = load();
  ASSERT_NE(session->backend().ops().sample, nullptr);
  StepRunner runner(*session);
  SamplingParams params;
  params.seed = 5;
  std::vector<Sequence> sequences;
  for (std::int32_t i = 0; i < 3; ++i) {
    sequences.push_back(session->new_sequence());
    sequences.back().ids = {10 + i, 20, 30, 40};
    sequences.back().reach = 100;
  }
  std::vector<StepItem> items;
  for (Sequence& sequence : sequences) {
    items.push_back({.sequence = &sequence,
                     .count = 4,
                     .logits = LogitRows::kLast,
                     .sampling = &sequence == &sequences[1] ? nullptr : &params,
                     .seed = params.seed});
  }
  const StepOutput mixed = runner.choose(items);
  ASSERT_EQ(mixed.ids.size(), 3u);
  EXPECT_EQ(mixed.ids[1], -1);
  const std::vector<float> row(mixed.logits.row(1).begin(), mixed.logits.row(1).end());
  const std::vector<std::int32_t> ids(mixed.ids.begin(), mixed.ids.end());
  for (Sequence& sequence : sequences) runner.truncate(sequence, 0);
  for (std::int32_t i = 0; i < 3; ++i)
    sequences[static_cast<std::size_t>(i)].ids = {10 + i, 20, 30, 40};
  const StepLogits all = runner.run(items);
  EXPECT_TRUE(std::equal(row.begin(), row.end(), all.row(1).begin()));
  for (const std::int64_t r : {0, 2}) {
    SamplerChain chain(params);
    EXPECT_EQ(ids[static_cast<std::size_t>(r)],
              chain.pick(all.row(r), sequences[static_cast<std::size_t>(r)].ids, 4));
  }
  for (Sequence& sequence : sequences) runner.truncate(sequence, 0);
  for (std::int32_t i = 0; i < 3; ++i)
    sequences[static_cast<std::size_t>(i)].ids = {10 + i, 20, 30, 40};
  items[1].sampling = &params;
  items[1].seed = params.seed;
  EXPECT_EQ(runner.choose(items).logits.rows(), 0);  // nothing is copied
}

// Answers of requests that are sampled on the backend, beside others whose stages are the host's,
// are those of requests that ask for their logits, which the host samples.
TEST_F(DeviceSampling, AnswersAreThoseOfTheHost) {
  std::vector<SamplingParams> params(6);
  for (std::size_t i = 0; i < params.size(); ++i) {
    params[i].seed = 100 + i;
    params[i].max_tokens = 40;
    params[i].temperature = 1.1;
  }
  params[1].top_k = 0;
  params[1].top_p = 1;
  params[1].min_p = 0.05;
  params[2].repetition_penalty = 1.3;
  params[2].logit_bias = {{65, 2.0}, {66, -100.0}};
  params[3].dry_multiplier = 0.8;  // the host's
  params[4].min_tokens = 5;
  params[5].xtc_probability = 0.5;  // the host's
  std::vector<std::vector<std::int32_t>> answers[2];
  for (const bool with_logits : {false, true}) {
    Engine engine(load());
    std::vector<RequestHandle> handles;
    for (const SamplingParams& p : params) {
      Request request;
      request.prompt = {65, 66, 67, static_cast<std::int32_t>(p.seed % 50)};
      request.sampling = p;
      request.ignore_end_tokens = true;
      request.return_logits = with_logits;
      handles.push_back(engine.submit(request));
    }
    for (RequestHandle& handle : handles) answers[with_logits].push_back(handle.wait().front().ids);
  }
  for (std::size_t i = 0; i < params.size(); ++i) {
    EXPECT_EQ(answers[0][i].size(), 40u);
    EXPECT_EQ(answers[0][i], answers[1][i]) << i;
  }
}

}  // namespace
}  // namespace bl::test
