// What a session will take: what is refused before loading, and whether what is said to fit does.

#include "engine/session_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "backend/cuda/cuda_planner.h"
#include "backend/registry.h"
#include "base/error.h"
#include "engine/open_model.h"
#include "tiny_model.h"

namespace bl::test {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40;

LoadOptions load_options(bool embed_host, std::int64_t context) {
  LoadOptions options;
  options.spec.context = context;
  options.embed_host = embed_host;
  return options;
}

// A model on a card that is not here.
struct OnACard {
  CudaPlanner backend;
  OpenedModel opened = open_model(make_tiny_model("plan"), {});
  SessionOptions options;
  ModelLoader loader;

  explicit OnACard(bool embed_host = false, std::int64_t context = 0)
      : loader(backend, opened.files, load_options(embed_host, context)) {
    options.context = context;
    options.embed_host = embed_host;
  }
  PlanInput input(std::uint64_t available) const { return {options, loader, backend, available}; }
  SessionPlan plan(std::uint64_t available) const { return plan_session(input(available)); }
};

TEST(SessionPlan, FitsIntoWhatItNeedsAndNotIntoLess) {
  OnACard card;
  card.options.context = 512;
  const SessionPlan plan = card.plan(kPlenty);
  EXPECT_EQ(plan.context, 512);
  EXPECT_EQ(plan.pages, 2);
  EXPECT_GT(plan.memory.cache, 0u);
  EXPECT_GT(plan.memory.driver, 0u);
  EXPECT_TRUE(card.plan(plan.memory.needed()).fits());
}

TEST(SessionPlan, NumbersThatMakeNoSenseAreNamed) {
  const auto expect_refused = [](auto change, const char* text) {
    OnACard card;
    change(card.options);
    for (int i = 0; i < 2; ++i) {
      try {
        i == 0 ? void(card.plan(kPlenty))
               : void(longest_fitting(card.input(kPlenty), CacheType::kF16));
        ADD_FAILURE() << text;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      }
    }
  };
  expect_refused([](auto& o) { o.sequences = 0; }, "sequences is 0, should be in 1 …");
  expect_refused([](auto& o) { o.sequences = INT64_MAX; }, "sequences is");
  expect_refused([](auto& o) { o.drafts = -1; }, "drafts is -1");
  expect_refused([](auto& o) { o.context = -1; }, "context is -1");
  expect_refused([](auto& o) { o.context = std::int64_t{1} << 60; }, "context is");
  expect_refused([](auto& o) { o.longest = -5; }, "longest is -5");
  expect_refused([](auto& o) { o.most_context = -5; }, "most_context is -5");
  expect_refused([](auto& o) { o.pages = -1; }, "pages is -1");
}

TEST(SessionPlan, StepsAreShorterWhereMemoryIsShort) {
  OnACard card(false, 1 << 20);
  const SessionPlan roomy = card.plan(kPlenty);
  EXPECT_EQ(roomy.step_tokens, 2048);
  const SessionPlan tight = card.plan(roomy.memory.needed() - 1);
  EXPECT_TRUE(tight.fits());
  EXPECT_EQ(tight.step_tokens, 1024);
  EXPECT_EQ(tight.context, roomy.context);
  EXPECT_LT(tight.memory.work, roomy.memory.work);
}

// Prompts whose log-probabilities are wanted take a row a token.
TEST(SessionPlan, AFewSequencesHaveRowsForAChunkOfAPrompt) {
  OnACard card(false, 4096);
  EXPECT_EQ(card.plan(kPlenty).logit_rows, 64);
  card.options.sequences = 100;
  EXPECT_EQ(card.plan(kPlenty).logit_rows, 100);
  // No more than a step has, or than some memory holds.
  EXPECT_EQ(OnACard(false, 40).plan(kPlenty).logit_rows, 40);
}

TEST(SessionPlan, TheLongestThatFitsIsTheLongest) {
  OnACard card(false, 1 << 20);
  card.options.sequences = 3;
  const MemoryPlan whole = card.plan(kPlenty).memory;
  const std::uint64_t available = whole.needed() - whole.cache / 2;
  ASSERT_FALSE(card.plan(available).fits());
  const std::int64_t longest = longest_fitting(card.input(available), CacheType::kF16);
  ASSERT_GT(longest, 0);
  card.options.context = longest;
  EXPECT_TRUE(card.plan(available).fits()) << longest;
  card.options.context = longest + 1;
  EXPECT_FALSE(card.plan(available).fits()) << longest;
}

std::string refusal(const OnACard& card, std::uint64_t available) {
  try {
    check_fits(card.input(available), card.plan(available), "MODEL");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    return error.what();
  }
  return "";
}

TEST(SessionPlan, WhatIsSaidToFitFits) {
  OnACard card(false, 1 << 20);
  const MemoryPlan whole = card.plan(kPlenty).memory;
  const std::uint64_t available = whole.needed() - whole.cache / 10 * 6;
  const std::string message = refusal(card, available);
  EXPECT_TRUE(message.starts_with("MODEL needs ")) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_NE(message.find("--embed-host"), std::string::npos) << message;
  std::smatch match;
  ASSERT_TRUE(std::regex_search(message, match, std::regex("what fits: --ctx (\\d+), or ")))
      << message;
  card.options.context = std::stoll(match[1]);
  EXPECT_EQ(refusal(card, available), "");
  ASSERT_TRUE(std::regex_search(message, match, std::regex("--cache q4"))) << message;
  card.options.context = 1 << 20;
  card.options.cache = CacheType::kQ4;
  EXPECT_EQ(refusal(card, available), "");
}

TEST(SessionPlan, NothingFitsIntoLessThanTheWeights) {
  OnACard card(false, 4096);
  const std::string message = refusal(card, card.loader.plan({}).weights);
  EXPECT_NE(message.find("no context and no type of cache fits"), std::string::npos) << message;
}

TEST(SessionPlan, TheEmbeddingOnTheHostIsNotTheCards) {
  const MemoryPlan on_card = OnACard(false, 512).plan(kPlenty).memory;
  const MemoryPlan on_host = OnACard(true, 512).plan(kPlenty).memory;
  EXPECT_EQ(on_card.on_host, 0u);
  EXPECT_GT(on_host.on_host, 0u);
  // Pieces of the card's memory are rounded up.
  EXPECT_GE(on_card.weights, on_host.weights + on_host.on_host);
  EXPECT_LT(on_card.weights, on_host.weights + on_host.on_host + 256);
}

TEST(SessionPlan, AModelThatDoesNotFitIsRefusedBeforeItIsLoaded) {
  SessionOptions options;
  options.model = make_tiny_model("refused");
  options.backend = "cpu";
  options.threads = 1;
  options.context = 1 << 16;
  options.memory = 4 << 20;
  options.on_progress = [](std::int64_t, std::int64_t) { FAIL() << "it began to load"; };
  std::string message;
  try {
    static_cast<void>(ModelSession::load(options));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    message = error.what();
  }
  std::smatch match;
  ASSERT_TRUE(std::regex_search(message, match, std::regex("what fits: --ctx (\\d+)"))) << message;
  options.on_progress = nullptr;
  options.context = std::stoll(match[1]);
  const auto session = ModelSession::load(options);
  EXPECT_LE(session->plan().total(), options.memory);
  EXPECT_EQ(session->cache().bytes(), session->plan().cache);
}

TEST(SessionPlan, CudaTakesWhatWasPlanned) {
  const std::vector<std::string> names = backend_names();
  if (std::find(names.begin(), names.end(), "cuda:0") == names.end()) {
    GTEST_SKIP() << "no NVIDIA card here";
  }
  for (const bool embed_host : {false, true}) {
    SessionOptions options;
    options.model = make_tiny_model("planned");
    options.backend = "cuda:0";
    options.context = 8192;
    options.embed_host = embed_host;
    const auto session = ModelSession::load(options);
    const MemoryPlan& plan = session->plan();
    const MemoryUse use = session->backend().memory_use();
    // The backend's own tables are planned roundly; nothing else is.
    constexpr std::size_t kTables = 1 << 20;
    const std::size_t now = plan.weights + plan.cache + plan.work + plan.backend;
    EXPECT_LE(use.now, now);
    EXPECT_GE(use.now + kTables, now);
    EXPECT_LE(use.peak, plan.total());
    EXPECT_GE(use.peak + kTables, plan.total());
  }
}

}  // namespace
}  // namespace bl::test
