// Rotations that depend on the length that a text may reach: who shares pages, and that guesses are
// made with the right ones.

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/model_draft.h"
#include "fake_model.h"
#include "support/data.h"
#include "tiny_model.h"

namespace bl {
namespace {

using test::FakeModel;

class ReachTest : public testing::Test {
 protected:
  static std::unique_ptr<ModelSession> load(const char* model, std::int64_t drafts = 0) {
    SessionOptions options = test::textless_session(test::unpacked("hf-tiny") / model, "cpu", 4);
    options.context = 120;
    options.drafts = drafts;
    return ModelSession::load(options);
  }

  static Request request(std::size_t prompt, std::int64_t max_tokens) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < prompt; ++i) {
      ids.push_back(static_cast<std::int32_t>((i * 31 + 17) % 61));
    }
    return test::greedy_request(std::move(ids), max_tokens);
  }

  static Answer ask(Engine& engine, const Request& request) {
    return engine.submit(request).wait().front();
  }

  struct Asked {
    std::int64_t tokens;  // behind a prompt of 40
    std::int64_t cached;
  };

  static void expect_shared(const char* model, std::span<const Asked> asked) {
    SCOPED_TRACE(model);
    Engine engine(load(model));
    for (const Asked& one : asked) {
      SCOPED_TRACE(one.tokens);
      const Request wanted = request(40, one.tokens);
      const Answer answer = ask(engine, wanted);
      EXPECT_EQ(answer.usage.cached_tokens, one.cached);
      Engine fresh(load(model));
      EXPECT_EQ(answer.ids, ask(fresh, wanted).ids);
    }
  }
};

TEST_F(ReachTest, TextsOfTheSameRotationsSharePages) {
  Engine engine(std::make_unique<FakeModel>(FakeModel::Options{.long_from = 710}), nullptr, {});
  const std::int64_t cached[] = {0, 699, 0, 699};
  const std::int64_t tokens[] = {9, 10, 11, 200};
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(tokens[i]);
    const Answer answer = ask(engine, request(700, tokens[i]));
    EXPECT_EQ(answer.usage.cached_tokens, cached[i]);
    EXPECT_EQ(answer.ids.size(), static_cast<std::size_t>(tokens[i]));
  }
}

// Both of these are other ones from 64 tokens on: longrope knows two kinds, dynamic one a length.
TEST_F(ReachTest, ModelsShareWhatTheyRotateAlike) {
  const Asked longrope[] = {{20, 0}, {24, 39}, {25, 0}, {26, 39}, {70, 39}};
  expect_shared("phi3-longrope", longrope);
  const Asked dynamic[] = {{20, 0}, {24, 39}, {25, 0}, {26, 0}, {26, 39}};
  expect_shared("llama-rope-dynamic", dynamic);
  const Asked plain[] = {{20, 0}, {70, 39}};
  expect_shared("llama", plain);
}

TEST_F(ReachTest, ADraftRotatesAsItsTargetDoes) {
  for (const char* model : {"phi3-longrope", "llama-rope-dynamic"}) {
    SCOPED_TRACE(model);
    Engine engine(load(model, 3), {.speculation = {std::make_shared<ModelDraft>(load(model)), 3}});
    for (const std::int64_t tokens : {20, 75}) {
      SCOPED_TRACE(tokens);
      const Usage usage = ask(engine, request(40, tokens)).usage;
      EXPECT_GT(usage.drafted_tokens, tokens / 2);
      EXPECT_EQ(usage.accepted_tokens, usage.drafted_tokens);
    }
  }
}

}  // namespace
}  // namespace bl
