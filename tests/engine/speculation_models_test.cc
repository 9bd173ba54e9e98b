// With and without guesses: the same ids of the committed tiny models, greedy and drawn.

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/file.h"
#include "engine/draft_policy.h"
#include "engine/engine.h"
#include "engine/model_draft.h"
#include "engine/ngram_draft.h"
#include "support/data.h"
#include "tiny_model.h"
#include "together.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<ModelSession> load(const fs::path& model, const char* backend,
                                   std::int64_t drafts) {
  SessionOptions options = test::textless_session(model, backend, 4);
  options.drafts = drafts;
  options.longest = 60;
  return ModelSession::load(options);
}

std::vector<Request> guessable_requests(std::int64_t vocab) {
  std::mt19937 random(3);
  std::vector<Request> out;
  for (std::size_t i = 0; i < 4; ++i) {
    Request request;
    for (std::size_t n = 3 + random() % 20; n > 0; --n) {
      request.prompt.push_back(
          static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab)));
    }
    // A text that repeats itself, so that there is something to guess.
    for (std::size_t n = 0; n < 8; ++n) request.prompt.push_back(request.prompt[n % 3]);
    request.sampling.temperature = i < 2 ? 0 : 0.8;
    request.sampling.seed = i;
    if (i == 1) request.sampling.repetition_penalty = 1.3;
    if (i == 3) request.sampling.frequency_penalty = 0.5;
    request.sampling.max_tokens = 20;
    request.ignore_end_tokens = true;
    out.push_back(std::move(request));
  }
  return out;
}

std::vector<std::vector<std::int32_t>> answer(Engine& engine, const std::vector<Request>& wanted) {
  std::vector<RequestHandle> handles = test::submit_together(engine, wanted);
  std::vector<std::vector<std::int32_t>> ids;
  for (RequestHandle& handle : handles) ids.push_back(handle.wait().front().ids);
  return ids;
}

void compare(const char* backend) {
  const std::vector<fs::path> models = test::golden_models();
  ASSERT_GE(models.size(), 20u);
  std::int64_t accepted = 0;
  for (const fs::path& model : models) {
    SCOPED_TRACE(model.filename().string());
    Engine plain(load(model, backend, 0));
    const auto wanted = guessable_requests(plain.session().vocab());
    const auto expected = answer(plain, wanted);
    Engine ngram(load(model, backend, 4), {.speculation = {std::make_shared<NgramDraft>(1), 4}});
    EXPECT_EQ(answer(ngram, wanted), expected);
    const EngineStats looked_up = ngram.settled_stats();
    EXPECT_GT(looked_up.drafted_tokens, 0);
    accepted += looked_up.accepted_tokens;
    Engine itself(load(model, backend, 3),
                  {.speculation = {std::make_shared<ModelDraft>(load(model, backend, 0)), 3}});
    EXPECT_EQ(answer(itself, wanted), expected);
    const EngineStats own = itself.settled_stats();
    EXPECT_GT(own.drafted_tokens, 30);
    EXPECT_EQ(own.accepted_tokens, own.drafted_tokens);
  }
  EXPECT_GT(accepted, 0);
}

TEST(SpeculationModels, SameIdsOnTheCpu) { compare("cpu"); }
TEST(SpeculationModels, SameIdsOnRef) { compare("ref"); }

// Guesses for both texts of guided answers.
TEST(SpeculationModels, SameIdsUnderGuidance) {
  std::int64_t accepted = 0;
  for (const fs::path& model : test::golden_models()) {
    SCOPED_TRACE(model.filename().string());
    Engine plain(load(model, "cpu", 0));
    auto wanted = guessable_requests(plain.session().vocab());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      wanted[i].sampling.cfg_scale = i % 2 == 0 ? 1.5 : 0.7;
      wanted[i].negative_prompt = wanted[(i + 1) % wanted.size()].prompt;
    }
    const auto expected = answer(plain, wanted);
    Engine ngram(load(model, "cpu", 4), {.speculation = {std::make_shared<NgramDraft>(1), 4}});
    EXPECT_EQ(answer(ngram, wanted), expected);
    const EngineStats looked_up = ngram.settled_stats();
    EXPECT_GT(looked_up.drafted_tokens, 0);
    accepted += looked_up.accepted_tokens;
    Engine itself(load(model, "cpu", 3),
                  {.speculation = {std::make_shared<ModelDraft>(load(model, "cpu", 0)), 3}});
    EXPECT_EQ(answer(itself, wanted), expected);
    EXPECT_GT(itself.settled_stats().accepted_tokens, 0);
  }
  EXPECT_GT(accepted, 0);
}

// As many as pay: whatever the clock says, the ids are the same.
TEST(SpeculationModels, SameIdsWithAsManyAsPay) {
  const fs::path model = test::unpacked("hf-tiny") / "llama";
  Engine plain(load(model, "cpu", 0));
  const auto wanted = guessable_requests(plain.session().vocab());
  const auto expected = answer(plain, wanted);
  for (int round = 0; round < 3; ++round) {
    Engine ngram(load(model, "cpu", DraftPolicy::kMost),
                 {.speculation = {std::make_shared<NgramDraft>()}});
    EXPECT_EQ(answer(ngram, wanted), expected);
    Engine itself(load(model, "cpu", DraftPolicy::kMost),
                  {.speculation = {std::make_shared<ModelDraft>(load(model, "cpu", 0))}});
    EXPECT_EQ(answer(itself, wanted), expected);
    EXPECT_EQ(answer(itself, wanted), expected);
  }
}

TEST(SpeculationModels, ADraftOfAnotherVocabularyIsRefused) {
  const auto open = [](const fs::path& folder) {
    SessionOptions options;
    options.model = folder;
    options.backend = "cpu";
    options.threads = 1;
    options.longest = 64;
    return ModelSession::load(options);
  };
  const fs::path target = test::make_tiny_model("spec_target");
  const fs::path draft = test::make_tiny_model("spec_draft");
  { Engine engine(open(target), {.speculation = {std::make_shared<ModelDraft>(open(draft))}}); }
  // One token has another name.
  std::string text = read_file(draft / "tokenizer.json");
  int named = 0;
  for (std::size_t at = 0; (at = text.find("<|bot|>", at)) != std::string::npos; ++named) {
    text.replace(at, 7, "<|bat|>");
  }
  ASSERT_GT(named, 0);
  write_file_atomically(draft / "tokenizer.json", text);
  try {
    Engine engine(open(target), {.speculation = {std::make_shared<ModelDraft>(open(draft))}});
    FAIL() << "a draft of another vocabulary was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("token 259"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace bl
