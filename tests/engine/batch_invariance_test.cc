// What a request gets does not depend on what runs beside it: greedy ids of the committed tiny
// models, alone and in a crowd: on the CPU always, on a card with kernels chosen regardless of the
// batch, and else until two tokens are nearly as likely.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "engine/engine.h"
#include "on_cuda.h"
#include "support/data.h"
#include "tiny_model.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ModelSession> load(const fs::path& model, std::int64_t sequences,
                                   std::optional<CacheTypes> cache = {},
                                   const char* backend = "cpu", bool deterministic = true) {
  SessionOptions options = test::textless_session(model, backend, sequences);
  options.deterministic = deterministic;
  options.cache = cache;
  options.pages = static_cast<std::int32_t>(sequences) * 2 + 2;
  options.longest = 60;  // the smallest of them holds 64
  return ModelSession::load(options);
}

// Sixteen prompts of different lengths, some of which begin alike.
std::vector<Request> crowd_of_requests(std::int64_t vocab) {
  std::mt19937 random(3);
  std::vector<Request> out;
  std::vector<std::int32_t> shared;
  for (int i = 0; i < 16; ++i) {
    Request request;
    if (i % 3 == 0) request.prompt = shared;
    for (std::size_t n = 1 + random() % 20; n > 0; --n) {
      request.prompt.push_back(
          static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab)));
    }
    if (i == 1) shared = request.prompt;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 16;
    request.ignore_end_tokens = true;
    out.push_back(std::move(request));
  }
  return out;
}

std::vector<Answer> answers_alone(Engine& engine, const std::vector<Request>& wanted) {
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Request request = wanted[i];
    request.cache_salt = std::to_string(i);  // nothing of another one
    answers.push_back(engine.submit(std::move(request)).wait().front());
  }
  return answers;
}

std::vector<std::vector<std::int32_t>> alone(Engine& engine, const std::vector<Request>& wanted) {
  std::vector<std::vector<std::int32_t>> ids;
  for (Answer& answer : answers_alone(engine, wanted)) ids.push_back(std::move(answer.ids));
  return ids;
}

std::vector<std::vector<std::int32_t>> together(Engine& engine,
                                                const std::vector<Request>& wanted) {
  std::vector<RequestHandle> handles;
  for (const Request& request : wanted) handles.push_back(engine.submit(request));
  std::vector<std::vector<std::int32_t>> ids;
  for (RequestHandle& handle : handles) ids.push_back(handle.wait().front().ids);
  return ids;
}

std::vector<fs::path> all_models() {
  std::vector<fs::path> models = test::golden_models();
  EXPECT_GE(models.size(), 20u);
  const std::vector<fs::path> quantized = test::golden_models("exl2-gptq");
  EXPECT_GE(quantized.size(), 4u);
  models.insert(models.end(), quantized.begin(), quantized.end());
  return models;
}

void expect_same_ids(const char* backend) {
  for (const fs::path& model : all_models()) {
    SCOPED_TRACE(model.filename().string());
    Engine single(load(model, 1, {}, backend));
    const auto wanted = crowd_of_requests(single.session().vocab());
    const auto expected = alone(single, wanted);
    Engine crowd(load(model, 16, {}, backend));
    EXPECT_EQ(together(crowd, wanted), expected);
    // Once more, with what the cache holds by now.
    EXPECT_EQ(together(crowd, wanted), expected);
    EXPECT_GT(crowd.stats().cache.tokens_found, 0);
    // Prompts in pieces of any length, beside those that decode.
    Engine narrow(load(model, 16, {}, backend), {.step_tokens = 19});
    EXPECT_EQ(together(narrow, wanted), expected);
  }
}

TEST(BatchInvariance, SameIdsAloneAndInACrowd) { expect_same_ids("cpu"); }

// Greedy ids until what is chosen and what is next have nearly the same log-probability.
void expect_nearly_same(const Answer& expected, const std::vector<std::int32_t>& ids) {
  ASSERT_EQ(ids.size(), expected.ids.size());
  const auto [at, other] = std::mismatch(ids.begin(), ids.end(), expected.ids.begin());
  if (at == ids.end()) return;
  const auto& best = expected.logprobs[static_cast<std::size_t>(at - ids.begin())].best;
  ASSERT_GE(best.size(), 2u);
  EXPECT_LT(best[0].logprob - best[1].logprob, 0.02f) << "at token " << at - ids.begin();
}

void expect_nearly_same_ids(const char* backend, const std::vector<fs::path>& models) {
  for (const fs::path& model : models) {
    SCOPED_TRACE(model.filename().string());
    Engine single(load(model, 1, {}, backend, false));
    auto wanted = crowd_of_requests(single.session().vocab());
    for (Request& request : wanted) {
      request.sampling.logprobs = true;
      request.sampling.top_logprobs = 2;
    }
    const std::vector<Answer> expected = answers_alone(single, wanted);
    Engine crowd(load(model, 16, {}, backend, false));
    const auto ids = together(crowd, wanted);
    for (std::size_t i = 0; i < ids.size(); ++i) expect_nearly_same(expected[i], ids[i]);
  }
}

TEST(BatchInvariance, NearlySameIds) {
  expect_nearly_same_ids("cpu", test::golden_models("exl2-gptq"));
}

class BatchInvarianceOnCuda : public test::OnCuda {};

TEST_F(BatchInvarianceOnCuda, SameIdsAloneAndInACrowd) { expect_same_ids("cuda:0"); }

TEST_F(BatchInvarianceOnCuda, NearlySameIds) { expect_nearly_same_ids("cuda:0", all_models()); }

TEST(BatchInvariance, EveryCacheTypeWithReuse) {
  const fs::path model = test::unpacked("hf-tiny") / "llama";
  for (const CacheTypes type : kAllCacheTypes) {
    SCOPED_TRACE(std::string(name_of(type)));
    std::unique_ptr<ModelSession> session;
    try {
      session = load(model, 1, type);
    } catch (const Error& error) {
      // Some types need heads that are longer than this model's.
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      continue;
    }
    Engine single(std::move(session));
    const auto wanted = crowd_of_requests(single.session().vocab());
    const auto expected = alone(single, wanted);
    Engine crowd(load(model, 16, type));
    EXPECT_EQ(together(crowd, wanted), expected);
    EXPECT_EQ(together(crowd, wanted), expected);
  }
}

// Draws belong to the request: its seed and the place in the text, not to the step.
TEST(BatchInvariance, SeedsAreTheRequestsOwn) {
  const fs::path model = test::unpacked("hf-tiny") / "llama";
  Engine single(load(model, 1));
  auto wanted = crowd_of_requests(single.session().vocab());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].sampling.temperature = 1;
    wanted[i].sampling.seed = 100 + i;
  }
  const auto expected = alone(single, wanted);
  Engine crowd(load(model, 16));
  EXPECT_EQ(together(crowd, wanted), expected);
  wanted[0].sampling.n = 3;
  const auto answers = crowd.submit(wanted[0]).wait();
  EXPECT_EQ(answers[0].ids, expected[0]);
  EXPECT_NE(answers[1].ids, answers[0].ids);
}

}  // namespace
}  // namespace bl
