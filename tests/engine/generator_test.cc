#include "engine/generator.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tiny_model.h"

namespace bl {
namespace {

bool keep_going(std::string_view) { return true; }

class GeneratorTest : public testing::Test {
 protected:
  static std::unique_ptr<ModelSession> load(std::int64_t context = 0, const char* extra = "") {
    SessionOptions options;
    options.model = test::make_tiny_model("generator", extra);
    options.backend = "ref";
    options.threads = 1;
    options.context = context;
    return ModelSession::load(options);
  }
  static GenerationRequest request(const ModelSession& session, std::string_view prompt,
                                   std::int64_t max_tokens) {
    GenerationRequest request;
    request.prompt = session.tokenizer().encode(prompt);
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    request.ignore_end_tokens = true;
    return request;
  }
};

// The same continuation, one full forward pass for each token.
std::vector<std::int32_t> slow_greedy(ModelSession& session, std::vector<std::int32_t> ids,
                                      std::int64_t count) {
  StepRunner runner(session);
  Sequence sequence = session.new_sequence();
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < count; ++i) {
    runner.truncate(sequence, 0);
    sequence.ids = ids;
    sequence.reach = session.context();
    StepLogits logits;
    while (sequence.cached < static_cast<std::int64_t>(ids.size())) {
      const std::int64_t left = static_cast<std::int64_t>(ids.size()) - sequence.cached;
      const StepItem item{&sequence, std::min<std::int64_t>(left, session.step_tokens()),
                          LogitRows::kLast};
      logits = runner.run({&item, 1});
    }
    const auto row = logits.row(0);
    ids.push_back(
        static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    out.push_back(ids.back());
  }
  return out;
}

TEST_F(GeneratorTest, DecodingEqualsComputingEverythingAgain) {
  const auto session = load();
  Generator generator(*session);
  const GenerationRequest wanted = request(*session, "weaving", 20);
  const Generation generation = generator.generate(wanted, keep_going);
  EXPECT_EQ(generation.reason, FinishReason::kMaxTokens);
  EXPECT_EQ(generation.stats.generated_tokens, 20);
  Generator after(*session);
  EXPECT_EQ(generation.ids, slow_greedy(*session, wanted.prompt, 20));
}

TEST_F(GeneratorTest, PromptOfSeveralStepsAndPages) {
  const auto session = load();
  const GenerationRequest wanted = request(*session, std::string(700, 'x') + "yz", 5);
  ASSERT_GT(static_cast<std::int64_t>(wanted.prompt.size()), session->step_tokens());
  std::int64_t last_done = 0;
  std::vector<std::int32_t> ids;
  {
    Generator generator(*session);
    generator.on_prefill = [&](std::int64_t done, std::int64_t total) {
      EXPECT_GT(done, last_done);
      EXPECT_EQ(total, static_cast<std::int64_t>(wanted.prompt.size()));
      last_done = done;
    };
    ids = generator.generate(wanted, keep_going).ids;
  }
  EXPECT_EQ(last_done, static_cast<std::int64_t>(wanted.prompt.size()));
  EXPECT_EQ(ids, slow_greedy(*session, wanted.prompt, 5));
}

TEST_F(GeneratorTest, AConversationComputesOnlyWhatIsNew) {
  const auto session = load();
  Generator generator(*session);
  const GenerationRequest first = request(*session, "one two three", 8);
  const Generation answer = generator.generate(first, keep_going);
  EXPECT_EQ(answer.stats.reused_tokens, 0);

  GenerationRequest second = first;
  second.prompt.insert(second.prompt.end(), answer.ids.begin(), answer.ids.end());
  for (const std::int32_t id : session->tokenizer().encode(" four", {.add_special = false})) {
    second.prompt.push_back(id);
  }
  const Generation reused = generator.generate(second, keep_going);
  // The last token of the first answer was never computed.
  EXPECT_EQ(reused.stats.reused_tokens,
            static_cast<std::int64_t>(first.prompt.size() + answer.ids.size()) - 1);
  Generator fresh(*session);
  EXPECT_EQ(fresh.generate(second, keep_going).ids, reused.ids);

  // The same question again, and one that parts from it early.
  EXPECT_EQ(generator.generate(second, keep_going).ids, reused.ids);
  const GenerationRequest other = request(*session, "one six", 8);
  EXPECT_EQ(generator.generate(other, keep_going).ids, fresh.generate(other, keep_going).ids);
}

TEST_F(GeneratorTest, StreamedTextIsTheDecodedContinuation) {
  const auto session = load();
  Generator generator(*session);
  const GenerationRequest wanted = request(*session, "loom", 60);
  std::string streamed;
  const Generation generation = generator.generate(wanted, [&](std::string_view text) {
    streamed += text;
    return true;
  });
  EXPECT_EQ(streamed, generation.text);
  std::vector<std::int32_t> all = wanted.prompt;
  all.insert(all.end(), generation.ids.begin(), generation.ids.end());
  const std::string prompt = session->tokenizer().decode(wanted.prompt, true);
  EXPECT_EQ(prompt + streamed, session->tokenizer().decode(all, true));
}

TEST_F(GeneratorTest, StopStringEndsBeforeItself) {
  const auto session = load();
  Generator generator(*session);
  GenerationRequest wanted = request(*session, "loom", 60);
  const std::string text = generator.generate(wanted, keep_going).text;
  // Plain bytes somewhere in the middle of what this model says.
  std::size_t at = text.size();
  for (std::size_t i = 5; i + 1 < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) < 128 &&
        static_cast<unsigned char>(text[i + 1]) < 128) {
      at = i;
      break;
    }
  }
  ASSERT_LT(at, text.size());
  wanted.stops = {text.substr(at, 2)};
  const Generation stopped = generator.generate(wanted, keep_going);
  EXPECT_EQ(stopped.reason, FinishReason::kStopString);
  EXPECT_EQ(stopped.text, text.substr(0, text.find(wanted.stops[0])));
}

TEST_F(GeneratorTest, TheReaderMayStop) {
  const auto session = load();
  Generator generator(*session);
  int pieces = 0;
  const Generation generation = generator.generate(request(*session, "loom", 100),
                                                   [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(generation.reason, FinishReason::kCancelled);
  EXPECT_LT(generation.stats.generated_tokens, 100);
}

TEST_F(GeneratorTest, EndTokensEndWithoutTheirText) {
  const auto session = load();
  Generator generator(*session);
  GenerationRequest wanted = request(*session, "loom", 0);
  const Generation all = generator.generate(wanted, keep_going);
  // A model whose fifth word is declared its end.
  const std::string extra =
      "\"text_config\": {\"eos_token_id\": " + std::to_string(all.ids[4]) + "},";
  const auto ending = load(0, extra.c_str());
  Generator second(*ending);
  wanted.ignore_end_tokens = false;
  const Generation generation = second.generate(wanted, keep_going);
  EXPECT_EQ(generation.reason, FinishReason::kEndToken);
  const auto first_end = std::find(all.ids.begin(), all.ids.end(), all.ids[4]);
  EXPECT_EQ(generation.ids, std::vector<std::int32_t>(all.ids.begin(), first_end + 1));
}

TEST_F(GeneratorTest, TheContextIsABorderNeverACut) {
  const auto session = load(40);
  EXPECT_EQ(session->context(), 40);
  Generator generator(*session);
  const Generation generation = generator.generate(request(*session, "0123456789", 0), keep_going);
  EXPECT_EQ(generation.reason, FinishReason::kContext);
  EXPECT_EQ(generation.stats.prompt_tokens + generation.stats.generated_tokens, 40);
  try {
    generator.generate(request(*session, std::string(60, 'a'), 1), keep_going);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("61 tokens"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--ctx"), std::string::npos);
  }
}

TEST_F(GeneratorTest, WrongRequestsAreRefused) {
  const auto session = load();
  Generator generator(*session);
  GenerationRequest empty = request(*session, "x", 1);
  empty.prompt.clear();
  EXPECT_THROW(generator.generate(empty, keep_going), Error);
  GenerationRequest foreign = request(*session, "x", 1);
  foreign.prompt.push_back(320);
  EXPECT_THROW(generator.generate(foreign, keep_going), Error);
  foreign.prompt.back() = -1;
  EXPECT_THROW(generator.generate(foreign, keep_going), Error);
  GenerationRequest hot = request(*session, "x", 1);
  hot.sampling.top_p = 3;
  EXPECT_THROW(generator.generate(hot, keep_going), Error);
  // And none of that has hurt.
  EXPECT_EQ(generator.generate(request(*session, "x", 3), keep_going).ids.size(), 3u);
}

TEST_F(GeneratorTest, TemplateSaysWhatEndsATurn) {
  const auto session = load();
  ASSERT_TRUE(session->text().end_of_turn().has_value());
  EXPECT_EQ(*session->text().end_of_turn(), 257);
  EXPECT_TRUE(session->is_end_token(257));
  EXPECT_FALSE(session->is_end_token(258));
}

TEST_F(GeneratorTest, BatchedStepsEqualSingleOnes) {
  SessionOptions options;
  options.model = test::make_tiny_model("batched");
  options.backend = "ref";
  options.threads = 1;
  options.sequences = 3;
  options.longest = 300;
  options.logits = SessionLogits::kEveryToken;
  const auto session = ModelSession::load(options);
  StepRunner runner(*session);
  std::vector<Sequence> sequences;
  std::vector<StepItem> plan;
  for (const std::size_t length : {5u, 280u, 1u}) {
    Sequence& sequence = sequences.emplace_back(session->new_sequence());
    for (std::size_t i = 0; i < length; ++i) {
      sequence.ids.push_back(static_cast<std::int32_t>((i * 37 + length) % 320));
    }
  }
  for (Sequence& sequence : sequences) {
    plan.push_back({&sequence, static_cast<std::int64_t>(sequence.ids.size()), LogitRows::kAll});
  }
  const StepLogits together = runner.run(plan);
  std::vector<std::vector<float>> rows;
  for (std::int64_t r = 0; r < together.rows(); ++r) {
    rows.emplace_back(together.row(r).begin(), together.row(r).end());
  }
  std::size_t row = 0;
  for (Sequence& sequence : sequences) {
    const std::vector<std::int32_t> ids = sequence.ids;
    runner.truncate(sequence, 0);
    sequence.ids = ids;
    const StepItem item{&sequence, static_cast<std::int64_t>(ids.size()), LogitRows::kAll};
    const StepLogits alone = runner.run({&item, 1});
    for (std::int64_t r = 0; r < alone.rows(); ++r, ++row) {
      for (std::size_t i = 0; i < rows[row].size(); ++i) {
        ASSERT_NEAR(alone.row(r)[i], rows[row][i], 1e-4f);
      }
    }
  }
}

}  // namespace
}  // namespace bl
