// Constrained answers through the whole engine: on a tiny model whose weights are random, so that
// nothing but the constraint makes its answers what they are.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "engine/engine.h"
#include "engine/ngram_draft.h"
#include "engine/request_intake.h"
#include "tiny_model.h"

namespace bl {
namespace {

using Kind = ConstraintSpec::Kind;

class ConstrainedTest : public testing::Test {
 protected:
  static std::unique_ptr<ModelSession> load(std::int64_t drafts = 0) {
    SessionOptions options;
    options.model = test::make_tiny_model("constrained");
    options.backend = "cpu";
    options.threads = 2;
    options.sequences = 4;
    options.drafts = drafts;
    return ModelSession::load(options);
  }
  Request request(ConstraintSpec constraint, std::int64_t max_tokens = 200) {
    Request request;
    request.prompt = engine_.tokenizer().encode("Say something: ");
    request.sampling.temperature = 1;
    request.sampling.top_k = 0;
    request.sampling.top_p = 1;
    request.sampling.seed = 5;
    request.sampling.max_tokens = max_tokens;
    request.continues_prompt = false;
    request.constraint = std::move(constraint);
    return request;
  }
  Answer ask(Request request) { return engine_.submit(std::move(request)).wait().front(); }

  Engine engine_{load()};
};

constexpr const char* kSchema =
    R"({"type":"object","properties":{"a":{"type":"boolean"},"b":{"enum":["x","yy"]},)"
    R"("c":{"type":"array","items":{"type":"integer","minimum":0,"maximum":99},"minItems":2,"maxItems":4}},)"
    R"("required":["a","b","c"]})";

TEST_F(ConstrainedTest, AnswersSatisfyASchema) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Request asked = request({.kind = Kind::kJsonSchema,
                             .text = kSchema,
                             .whitespace = {.kind = JsonWhitespace::Kind::kOneLine}});
    asked.sampling.seed = seed;
    const Answer answer = ask(asked);
    ASSERT_EQ(answer.error, "");
    const Json value = Json::parse(answer.text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << answer.text;
    EXPECT_TRUE(value["a"].is_boolean());
    EXPECT_TRUE(value["b"] == "x" || value["b"] == "yy");
    EXPECT_GE(value["c"].size(), 2u);
    // Nothing can follow the last bracket, so nothing is waited for.
    EXPECT_EQ(answer.reason, FinishReason::kConstraint);
  }
}

TEST_F(ConstrainedTest, GreedyAnswersAreConstrainedToo) {
  Request asked = request({.kind = Kind::kJsonSchema,
                           .text = kSchema,
                           .whitespace = {.kind = JsonWhitespace::Kind::kOneLine}});
  asked.sampling.temperature = 0;
  EXPECT_TRUE(Json::accept(ask(asked).text));
}

TEST_F(ConstrainedTest, EachChoiceHasItsOwnState) {
  Request asked = request({.kind = Kind::kRegex, .text = "(ab|cd|ef){3}[0-9]{4}"});
  asked.sampling.n = 6;
  std::set<std::string> texts;
  for (const Answer& answer : engine_.submit(asked).wait()) {
    EXPECT_TRUE(std::regex_match(answer.text, std::regex("(ab|cd|ef){3}[0-9]{4}"))) << answer.text;
    texts.insert(answer.text);
  }
  EXPECT_GT(texts.size(), 1u);
}

TEST_F(ConstrainedTest, AnswersDoNotDependOnWhatElseRuns) {
  const Request asked = request({.kind = Kind::kRegex, .text = "[a-z]{30}[0-9]{10}"});
  const std::string alone = ask(asked).text;
  std::vector<RequestHandle> others;
  for (std::uint64_t i = 0; i < 6; ++i) {
    Request other = i % 2 == 0 ? request({.kind = Kind::kJsonObject}, 60) : request({}, 60);
    other.sampling.seed = i;
    others.push_back(engine_.submit(std::move(other)));
  }
  EXPECT_EQ(ask(asked).text, alone);
  for (RequestHandle& other : others) EXPECT_EQ(other.wait().front().error, "");
}

// Guesses are held to the masks like anything else, and what was guessed behind the end is nothing.
TEST_F(ConstrainedTest, GuessesChangeNothing) {
  Engine guessing(load(4), {.speculation = {std::make_shared<NgramDraft>(1), 4}});
  std::int64_t right = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Request asked = request({.kind = Kind::kRegex, .text = "(ab){20,30}[0-9]{3}(x|xy)"}, 100);
    asked.sampling.seed = seed;
    if (seed % 3 == 2) asked.sampling.banned_strings = {"00"};
    const Answer answer = guessing.submit(asked).wait().front();
    const Answer plain = ask(asked);
    EXPECT_EQ(answer.text, plain.text);
    EXPECT_EQ(answer.ids, plain.ids);
    EXPECT_EQ(answer.reason, plain.reason);
    EXPECT_EQ(answer.error, plain.error);
    right += answer.usage.accepted_tokens;
  }
  EXPECT_GT(right, 50);
}

TEST_F(ConstrainedTest, AnEndTokenIsChosenOnlyWhereTheGrammarMayEnd) {
  const auto end = engine_.tokenizer().eos_id().value();
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Request asked = request({.kind = Kind::kRegex, .text = "a{5}b*"}, 40);
    asked.sampling.seed = seed;
    asked.sampling.logit_bias = {{end, 50}};
    const Answer answer = ask(asked);
    EXPECT_EQ(answer.text, "aaaaa");
    EXPECT_EQ(answer.reason, FinishReason::kEndToken);
    asked.ignore_end_tokens = true;
    EXPECT_EQ(ask(asked).reason, FinishReason::kMaxTokens);
  }
}

TEST_F(ConstrainedTest, OtherRulesOfTheRequestHoldBesideIt) {
  Request asked = request({.kind = Kind::kRegex, .text = "[a-f]*"}, 50);
  const auto id = [&](const char* text) { return *engine_.tokenizer().token_to_id(text); };
  asked.sampling.banned_tokens = {id("a"), id("b")};
  asked.sampling.stop_strings = {"cc"};
  asked.sampling.logit_bias = {{id("c"), 5}};
  const Answer answer = ask(asked);
  EXPECT_EQ(answer.reason, FinishReason::kStopString);
  EXPECT_TRUE(std::regex_match(answer.text, std::regex("[c-f]*"))) << answer.text;

  asked.sampling = request({}, 10).sampling;
  asked.sampling.allowed_tokens = {id("z")};
  const Answer stuck = ask(asked);
  EXPECT_EQ(stuck.reason, FinishReason::kError);
  EXPECT_EQ(stuck.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(stuck.error.find("no token is left"), std::string::npos) << stuck.error;
  EXPECT_EQ(ask(request({}, 5)).error, "");  // the engine lives on
}

TEST_F(ConstrainedTest, LogProbabilitiesAndBestOfWorkBesideIt) {
  Request asked = request({.kind = Kind::kRegex, .text = "[0-9]{6}"});
  asked.sampling.logprobs = true;
  asked.sampling.logprobs_after = true;
  asked.sampling.top_logprobs = 3;
  const Answer answer = ask(asked);
  ASSERT_EQ(answer.ids.size(), 6u);
  ASSERT_EQ(answer.logprobs.size(), 6u);
  for (const TokenLogprobs& one : answer.logprobs) {
    for (const TokenChance& chance : one.best) {
      EXPECT_TRUE(chance.id >= '0' && chance.id <= '9') << chance.id;
    }
  }
  asked.sampling.logprobs = asked.sampling.logprobs_after = false;
  asked.sampling.top_logprobs = 0;
  asked.sampling.best_of = 3;
  EXPECT_TRUE(std::regex_match(ask(asked).text, std::regex("[0-9]{6}")));
}

TEST_F(ConstrainedTest, WhatIsWrongIsRefusedBeforeItRuns) {
  const std::vector<std::pair<Kind, const char*>> wrong{
      {Kind::kRegex, "(("},     {Kind::kGrammar, "root ::= ("}, {Kind::kJsonSchema, "{\"type\":5}"},
      {Kind::kJsonSchema, "{"}, {Kind::kStructuralTag, "{}"},   {Kind::kGrammar, ""},
      {Kind::kRegex, "(?<=x)a"}};
  for (const auto& [kind, text] : wrong) {
    EXPECT_THROW(engine_.submit(request({.kind = kind, .text = text})), Error) << text;
  }
  EXPECT_EQ(engine_.stats().running, 0);
}

TEST_F(ConstrainedTest, AnswersStayFreeUntilTheTrigger) {
  Request asked = request({.kind = Kind::kRegex, .text = "[0-9]{3}"}, 60);
  const auto trigger = *engine_.tokenizer().token_to_id("!");
  asked.constraint.trigger_token = trigger;
  asked.sampling.logit_bias = {{trigger, 3}};
  const Answer answer = ask(asked);
  EXPECT_EQ(answer.reason, FinishReason::kConstraint);
  const auto at = answer.text.find('!');
  ASSERT_NE(at, std::string::npos);
  EXPECT_TRUE(std::regex_match(answer.text.substr(at + 1), std::regex("[0-9]{3}"))) << answer.text;
}

TEST_F(ConstrainedTest, AHookCannotLeaveTheForm) {
  Request asked = request({.kind = Kind::kRegex, .text = "[0-9]{6}"});
  asked.after_sampling = [](const SampledToken& token) {
    return token.history.back() == '7' ? '8' : token.id;
  };
  const Answer answer = ask(asked);
  EXPECT_EQ(answer.error, "");
  for (std::size_t i = 0; i + 1 < answer.text.size(); ++i) {
    EXPECT_TRUE(answer.text[i] != '7' || answer.text[i + 1] == '8') << answer.text;
  }
  asked.after_sampling = [](const SampledToken&) { return 'x'; };
  EXPECT_EQ(ask(asked).error, "the constraint does not allow token 120 here");
}

TEST_F(ConstrainedTest, SeveralHoldTogetherWithAndWithoutGuesses) {
  Engine guessing(load(4), {.speculation = {std::make_shared<NgramDraft>(1), 4}});
  ConstraintSpec both{.kind = Kind::kRegex, .text = "(ab|cd|x){6,9}[0-9]"};
  both.also = {{.kind = Kind::kRegex, .text = "[a-d]*[5-9]"}};
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Request asked = request(both);
    asked.sampling.seed = seed;
    if (seed % 2 == 1) asked.sampling.banned_strings = {"abab", "7"};
    const Answer answer = ask(asked);
    EXPECT_EQ(answer.error, "");
    EXPECT_EQ(answer.reason, FinishReason::kConstraint);
    EXPECT_TRUE(std::regex_match(answer.text, std::regex("(ab|cd){6,9}[5-9]"))) << answer.text;
    EXPECT_EQ(guessing.submit(asked).wait().front().text, answer.text);
  }
}

// Rows of logits are often wider than the vocabulary.
TEST_F(ConstrainedTest, ATriggerThatNeverComesIsRefused) {
  const std::int32_t tokens = engine_.tokenizer().vocab_size();
  RequestIntake intake(&engine_.tokenizer(),
                       {.facts = {.vocab = tokens + 64, .ids = tokens + 64}, .longest = 100});
  const auto complete = [&](std::int32_t trigger) {
    OpenRequest open;
    open.request = request({.kind = Kind::kRegex, .text = "a"});
    open.request.constraint.trigger_token = trigger;
    intake.complete(open);
  };
  EXPECT_NO_THROW(complete(tokens - 1));
  for (const std::int32_t never : {tokens, tokens + 63, tokens + 64}) {
    try {
      complete(never);
      ADD_FAILURE() << never;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(
          std::string(error.what()),
          fmt::format("trigger_token is {}, the model's tokens are 0 … {}", never, tokens - 1));
    }
  }
}

}  // namespace
}  // namespace bl
