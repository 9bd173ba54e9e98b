// Requests that want no answer, and those whose sampling changes while they run.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/model_session.h"
#include "tiny_model.h"

namespace bl {
namespace {

class RequestChanges : public testing::Test {
 protected:
  static std::unique_ptr<ModelSession> load() {
    SessionOptions options;
    options.model = test::make_tiny_model("request-changes");
    options.backend = "ref";
    options.sequences = 4;
    return ModelSession::load(options);
  }
  Engine engine_{load()};
};

TEST_F(RequestChanges, ThePromptAlone) {
  Request request = test::greedy_request({1, 2, 3, 4}, 50);
  request.prompt_only = true;
  request.sampling.n = 2;
  request.sampling.logprobs = true;
  request.sampling.prompt_logprobs = 2;
  const std::vector<Answer> answers = engine_.submit(request).wait();
  ASSERT_EQ(answers.size(), 2u);
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.reason, FinishReason::kMaxTokens);
    EXPECT_TRUE(answer.ids.empty() && answer.text.empty() && answer.logprobs.empty());
    EXPECT_EQ(answer.usage.generated_tokens, 0);
    EXPECT_EQ(answer.usage.prompt_tokens, 4);
  }
  EXPECT_EQ(answers[0].prompt_logprobs.size(), 3u);
}

TEST_F(RequestChanges, LaterTokensAreChosenByOtherParameters) {
  Request request = test::greedy_request({1, 2, 3}, 400);
  request.unread_tokens = 4;  // so that it does not end before the change
  SamplingParams changed = request.sampling;
  changed.allowed_tokens = {77};
  RequestHandle handle = engine_.submit(request);
  std::vector<std::int32_t> ids;
  bool done = false;
  while (const std::optional<Event> event = handle.next()) {
    ids.insert(ids.end(), event->ids.begin(), event->ids.end());
    if (!done && !ids.empty()) engine_.change_sampling(handle, changed);
    done = done || !ids.empty();
  }
  ASSERT_EQ(ids.size(), 400u);
  EXPECT_EQ(std::vector<std::int32_t>(ids.end() - 300, ids.end()),
            std::vector<std::int32_t>(300, 77));
  EXPECT_NE(ids.front(), 77);
}

TEST_F(RequestChanges, WrongParametersChangeNothing) {
  Request request = test::greedy_request({1, 2, 3}, 20);
  const std::vector<std::int32_t> expected = engine_.submit(request).wait()[0].ids;
  request.unread_tokens = 4;
  RequestHandle handle = engine_.submit(request);
  SamplingParams wrong = request.sampling;
  wrong.allowed_tokens = {1'000'000};
  EXPECT_THROW(engine_.change_sampling(handle, wrong), Error);
  EXPECT_EQ(handle.wait()[0].ids, expected);
  engine_.change_sampling(handle, request.sampling);  // it is over
}

}  // namespace
}  // namespace bl
