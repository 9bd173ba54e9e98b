#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "engine/batch_logits.h"
#include "engine/step_runner.h"
#include "fake_model.h"
#include "tiny_model.h"

namespace bl {
namespace {

class EngineTest : public testing::Test {
 protected:
  static std::unique_ptr<ModelSession> load(std::int64_t context = 0, const char* extra = "") {
    SessionOptions options;
    options.model = test::make_tiny_model("engine", extra);
    options.backend = "ref";
    options.threads = 1;
    options.context = context;
    return ModelSession::load(options);
  }
  static Request request(const Tokenizer& tokenizer, std::string_view prompt,
                         std::int64_t max_tokens) {
    return test::greedy_request(tokenizer.encode(prompt), max_tokens);
  }
  static Answer ask(Engine& engine, const Request& request) {
    return engine.submit(request).wait().front();
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

TEST_F(EngineTest, DecodingEqualsComputingEverythingAgain) {
  auto session = load();
  const Request wanted = request(session->tokenizer(), "weaving", 20);
  const auto expected = slow_greedy(*session, wanted.prompt, 20);
  Engine engine(std::move(session));
  const Answer answer = ask(engine, wanted);
  EXPECT_EQ(answer.reason, FinishReason::kMaxTokens);
  EXPECT_EQ(answer.usage.generated_tokens, 20);
  EXPECT_EQ(answer.ids, expected);
}

TEST_F(EngineTest, PromptOfSeveralStepsAndPages) {
  auto session = load();
  const Request wanted = request(session->tokenizer(), std::string(700, 'x') + "yz", 5);
  const auto tokens = static_cast<std::int64_t>(wanted.prompt.size());
  ASSERT_GT(tokens, session->step_tokens());
  const auto expected = slow_greedy(*session, wanted.prompt, 5);
  Engine engine(std::move(session));
  RequestHandle handle = engine.submit(wanted);
  std::int64_t last_done = 0;
  std::vector<std::int32_t> ids;
  while (const std::optional<Event> event = handle.next()) {
    if (event->prompt_done > 0) {
      EXPECT_GT(event->prompt_done, last_done);
      last_done = event->prompt_done;
    }
    ids.insert(ids.end(), event->ids.begin(), event->ids.end());
  }
  EXPECT_EQ(last_done, tokens);
  EXPECT_EQ(ids, expected);
}

TEST_F(EngineTest, LogProbabilitiesOfAPromptComeInChunks) {
  Engine engine(load());  // one sequence
  Request wanted = request(engine.tokenizer(), std::string(300, 'x'), 1);
  wanted.sampling.prompt_logprobs = 1;
  const Answer answer = ask(engine, wanted);
  EXPECT_EQ(answer.prompt_logprobs.size(), wanted.prompt.size() - 1);
  EXPECT_LE(engine.settled_stats().steps, 6);
}

TEST_F(EngineTest, AConversationComputesOnlyWhatIsNew) {
  Engine engine(load());
  const Request first = request(engine.tokenizer(), "one two three", 8);
  const Answer answer = ask(engine, first);
  EXPECT_EQ(answer.usage.cached_tokens, 0);

  Request second = first;
  second.prompt.insert(second.prompt.end(), answer.ids.begin(), answer.ids.end());
  for (const std::int32_t id : engine.tokenizer().encode(" four", {.add_special = false})) {
    second.prompt.push_back(id);
  }
  const Answer reused = ask(engine, second);
  // The last token of the first answer was never computed.
  EXPECT_EQ(reused.usage.cached_tokens,
            static_cast<std::int64_t>(first.prompt.size() + answer.ids.size()) - 1);
  Engine fresh(load());
  EXPECT_EQ(ask(fresh, second).ids, reused.ids);

  // The same question again, and one that parts from it early.
  EXPECT_EQ(ask(engine, second).ids, reused.ids);
  const Request other = request(engine.tokenizer(), "one six", 8);
  EXPECT_EQ(ask(engine, other).ids, ask(fresh, other).ids);
}

TEST_F(EngineTest, StreamedTextIsTheDecodedContinuation) {
  Engine engine(load());
  const Request wanted = request(engine.tokenizer(), "loom", 60);
  const Answer answer = ask(engine, wanted);
  std::vector<std::int32_t> all = wanted.prompt;
  all.insert(all.end(), answer.ids.begin(), answer.ids.end());
  const std::string prompt = engine.tokenizer().decode(wanted.prompt, true);
  EXPECT_EQ(prompt + answer.text, engine.tokenizer().decode(all, true));
}

TEST_F(EngineTest, StopStringEndsBeforeItself) {
  Engine engine(load());
  Request wanted = request(engine.tokenizer(), "loom", 60);
  const std::string text = ask(engine, wanted).text;
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
  wanted.sampling.stop_strings = {text.substr(at, 2)};
  const Answer stopped = ask(engine, wanted);
  EXPECT_EQ(stopped.reason, FinishReason::kStopString);
  EXPECT_EQ(stopped.stop_string, wanted.sampling.stop_strings[0]);
  EXPECT_EQ(stopped.text, text.substr(0, text.find(wanted.sampling.stop_strings[0])));
}

TEST_F(EngineTest, TheReaderMayStop) {
  Engine engine(load());
  Request wanted = request(engine.tokenizer(), "loom", 900);
  wanted.unread_tokens = 4;
  RequestHandle handle = engine.submit(wanted);
  ASSERT_TRUE(handle.next().has_value());
  handle.cancel();
  const Answer answer = handle.wait().front();
  EXPECT_EQ(answer.reason, FinishReason::kCancelled);
  EXPECT_LT(answer.usage.generated_tokens, 900);
}

TEST(EngineHandle, WaitingForEverIsWaiting) {
  auto model = std::make_unique<test::FakeModel>(test::FakeModel::Options{});
  model->on_step = [](std::span<const StepItem>) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  Engine engine(std::move(model), nullptr, {999});
  Request wanted;
  wanted.prompt = {1, 2, 3};
  wanted.sampling.max_tokens = 3;
  RequestHandle handle = engine.submit(wanted);
  EXPECT_TRUE(handle.next(std::chrono::milliseconds::max()).has_value());
  while (handle.next(std::chrono::milliseconds::max())) continue;
  EXPECT_TRUE(handle.over());
  EXPECT_FALSE(handle.next(std::chrono::milliseconds::min()).has_value());
}

TEST(EngineHandle, RowsThatWaitAreBoundedForARequest) {
  EngineOptions options;
  options.unread_logits = 40 * 1000;
  const test::FakeModel::Options model{.vocab = 1000, .gives_logits = true};
  Engine engine(std::make_unique<test::FakeModel>(model), nullptr, {}, options);
  Request wanted;
  wanted.prompt = {1, 2, 3};
  wanted.sampling.max_tokens = 60;
  wanted.sampling.n = 8;
  wanted.return_logits = true;
  RequestHandle handle = engine.submit(wanted);
  // All have paused when the engine has had a turn without a step.
  std::int64_t steps = -1;
  for (std::int64_t now = 0; steps != now || steps < 5; now = engine.settled_stats().steps) {
    steps = now;
  }
  std::size_t rows = 0;
  for (int i = 0; i < 8; ++i) rows += handle.next()->logits.size();
  // Those that were read first may have gone on.
  EXPECT_GE(rows, 40u);
  EXPECT_LT(rows, 40u + 40u);
  const std::vector<Answer> answers = handle.wait();
  for (const Answer& answer : answers) EXPECT_EQ(answer.reason, FinishReason::kMaxTokens);
}

TEST_F(EngineTest, EndTokensEndWithoutTheirText) {
  Engine engine(load());
  Request wanted = request(engine.tokenizer(), "loom", 0);
  const Answer all = ask(engine, wanted);
  EXPECT_EQ(all.reason, FinishReason::kContext);
  // A model whose fifth word is declared its end.
  const std::string extra =
      "\"text_config\": {\"eos_token_id\": " + std::to_string(all.ids[4]) + "},";
  Engine ending(load(0, extra.c_str()));
  wanted.ignore_end_tokens = false;
  const Answer answer = ask(ending, wanted);
  EXPECT_EQ(answer.reason, FinishReason::kEndToken);
  const auto first_end = std::find(all.ids.begin(), all.ids.end(), all.ids[4]);
  EXPECT_EQ(answer.ids, std::vector<std::int32_t>(all.ids.begin(), first_end + 1));
  // The same as a stop token of the request; and not before so many tokens.
  wanted.ignore_end_tokens = true;
  wanted.sampling.stop_tokens = {all.ids[4]};
  EXPECT_EQ(ask(ending, wanted).ids, answer.ids);
  wanted.sampling.min_tokens = 9;
  const Answer longer = ask(ending, wanted);
  EXPECT_GE(longer.ids.size(), 9u);
  EXPECT_EQ(std::find(longer.ids.begin(), longer.ids.begin() + 9, all.ids[4]),
            longer.ids.begin() + 9);
}

TEST_F(EngineTest, TheContextIsABorderNeverACut) {
  Engine engine(load(40));
  EXPECT_EQ(engine.context(), 40);
  const Answer answer = ask(engine, request(engine.tokenizer(), "0123456789", 0));
  EXPECT_EQ(answer.reason, FinishReason::kContext);
  EXPECT_EQ(answer.usage.prompt_tokens + answer.usage.generated_tokens, 40);
  try {
    ask(engine, request(engine.tokenizer(), std::string(60, 'a'), 1));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("61 tokens"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--ctx"), std::string::npos);
  }
}

TEST_F(EngineTest, LogitsOfAnAnswer) {
  Engine engine(load());
  Request wanted = request(engine.tokenizer(), "loom", 7);
  const Answer plain = ask(engine, wanted);
  EXPECT_TRUE(plain.logits.empty());
  wanted.return_logits = true;
  const Answer answer = ask(engine, wanted);
  EXPECT_EQ(answer.ids, plain.ids);
  ASSERT_EQ(answer.logits.size(), answer.ids.size());
  for (std::size_t i = 0; i < answer.ids.size(); ++i) {
    const std::vector<float>& row = answer.logits[i];
    ASSERT_EQ(row.size(), 320u);
    EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), answer.ids[i]);
  }
}

TEST_F(EngineTest, GuidanceAndHealingOnARealModel) {
  SessionOptions options;
  options.model = test::make_tiny_model("engine-guided");
  options.backend = "ref";
  options.threads = 1;
  options.sequences = 2;
  Engine engine(ModelSession::load(options));
  const Request plain = request(engine.tokenizer(), "warp and weft", 20);
  const Answer expected = ask(engine, plain);
  // A text against itself is the text, whatever the scale.
  Request same = plain;
  same.sampling.cfg_scale = 3;
  same.negative_prompt = plain.prompt;
  EXPECT_EQ(ask(engine, same).ids, expected.ids);
  Request guided = plain;
  guided.sampling.cfg_scale = 4;
  guided.sampling.negative_prompt = "a knot";
  const Answer away = ask(engine, guided);
  EXPECT_EQ(away.reason, FinishReason::kMaxTokens) << away.error;
  EXPECT_NE(away.ids, expected.ids);
  EXPECT_EQ(away.usage.prompt_tokens, expected.usage.prompt_tokens);
  guided.negative_prompt = engine.tokenizer().encode("a knot");
  guided.sampling.negative_prompt.clear();
  EXPECT_EQ(ask(engine, guided).ids, away.ids);
  // Tokens of this model are bytes: the last one of the prompt comes again.
  Request healed = plain;
  healed.sampling.token_healing = true;
  const Answer again = ask(engine, healed);
  EXPECT_EQ(again.healed, std::vector<std::int32_t>{plain.prompt.back()});
  EXPECT_EQ(again.ids, expected.ids);
  EXPECT_EQ(again.text, expected.text);
  // A string of what the model would say.
  Request banned = plain;
  for (std::size_t i = 2; i + 3 < expected.text.size(); ++i) {
    const std::string part = expected.text.substr(i, 2);
    if (part[0] < 0 || part[1] < 0 || expected.text.find(part) < i) continue;
    // Of a longer token the text before the string goes, too.
    if (part.find_first_of("~0123456789") != std::string::npos) continue;
    banned.sampling.banned_strings = {part};
    const Answer other = ask(engine, banned);
    EXPECT_EQ(other.text.find(part), std::string::npos);
    EXPECT_EQ(other.text.substr(0, i), expected.text.substr(0, i));
    EXPECT_GT(other.usage.rewinds, 0);
  }
  EXPECT_FALSE(banned.sampling.banned_strings.empty());
  // One sequence at a time cannot do it.
  Engine narrow(load());
  EXPECT_THROW(narrow.submit(guided), Error);
}

// The ids that DRY and XTC need come from the tokenizer.
TEST_F(EngineTest, TextsOfSamplersBecomeTokens) {
  Engine engine(load());
  Request wanted = request(engine.tokenizer(), "ab*abc*abcab*cab", 24);
  for (const char c : {'a', 'b', 'c', '*'}) wanted.sampling.logit_bias.push_back({c, 50.0});
  wanted.sampling.dry_multiplier = 5;
  wanted.sampling.dry_allowed_length = 1;
  const Answer found = ask(engine, wanted);
  Request written = wanted;
  written.sampling.dry_breaker_tokens = {};
  for (std::int32_t id = 0; id < 260; ++id) {
    const std::string text = engine.tokenizer().decode({&id, 1}, false);
    const bool breaks = text.find_first_of("\n:\"*") != text.npos;
    if (breaks || engine.tokenizer().is_special(id)) {
      written.sampling.dry_breaker_tokens.push_back(id);
    }
  }
  EXPECT_EQ(ask(engine, written).ids, found.ids);
  written.sampling.dry_sequence_breakers = {"b"};
  written.sampling.dry_breaker_tokens = {};
  EXPECT_NE(ask(engine, written).ids, found.ids);
}

TEST_F(EngineTest, TokensAreKnownByTheirTexts) {
  Engine engine(load());
  Request wanted = request(engine.tokenizer(), "weaving", 24);
  Request by_id = wanted;
  wanted.sampling.allowed_tokens = {'x'};
  wanted.sampling.allowed_pieces = {"a", " ", "<|user|>"};
  wanted.sampling.banned_pieces = {"x"};
  by_id.sampling.allowed_tokens = {'a', ' ', 258};
  const Answer answer = ask(engine, wanted);
  EXPECT_EQ(answer.ids, ask(engine, by_id).ids);
  for (const std::int32_t id : answer.ids) EXPECT_TRUE(id == 'a' || id == ' ' || id == 258) << id;
  const auto refused = [&](const std::vector<std::string>& banned,
                           const std::vector<std::string>& allowed) {
    Request wrong = by_id;
    wrong.sampling.allowed_tokens.clear();
    wrong.sampling.banned_pieces = banned;
    wrong.sampling.allowed_pieces = allowed;
    try {
      engine.submit(wrong);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({}, {"a", "hello\nyou"})
                .find("allowed_tokens has \"hello\\nyou\", which is no token of the model"),
            0u);
  EXPECT_EQ(refused({"hello"}, {"a"}).find("banned_tokens has \"hello\", which is no token"), 0u);
  EXPECT_EQ(refused({"a"}, {"a"}).find("allowed_tokens has 1 ids, and all of them are barred"), 0u);
  EXPECT_NE(refused({""}, {}), "accepted");
  EXPECT_LT(refused({std::string(4000, 'x')}, {}).size(), 300u);
  Engine textless(std::make_unique<test::FakeModel>(test::FakeModel::Options{}), nullptr, {});
  by_id.sampling.allowed_tokens.clear();
  by_id.sampling.banned_pieces = {"a"};
  EXPECT_THROW(textless.submit(by_id), Error);
}

TEST_F(EngineTest, WrongRequestsAreRefused) {
  Engine engine(load());
  const Request right = request(engine.tokenizer(), "x", 3);
  const auto refused = [&](auto&& change) {
    Request wrong = right;
    change(wrong);
    try {
      engine.submit(wrong);
      return std::string();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      return std::string(error.what());
    }
  };
  EXPECT_NE(refused([](Request& r) { r.prompt.clear(); }), "");
  EXPECT_NE(refused([](Request& r) { r.prompt.push_back(320); }), "");
  EXPECT_NE(refused([](Request& r) { r.prompt.push_back(-1); }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.top_p = 3; }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.n = 1'000'000; }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.n = 0; }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.max_tokens = -1; }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.min_tokens = 4; }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.stop_strings.assign(5000, "stop"); }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.stop_strings = {""}; }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.stop_strings = {std::string(5000, 'x')}; }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.stop_tokens = {1 << 20}; }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.top_logprobs = 1000; }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.prompt_logprobs = -2; }), "");
  EXPECT_NE(refused([](Request& r) { r.deadline = std::nan(""); }), "");
  EXPECT_NE(refused([](Request& r) { r.max_skips = -1; }), "");
  EXPECT_NE(refused([](Request& r) { r.max_skips = 1'000'001; }), "");
  EXPECT_EQ(refused([](Request& r) { r.sampling.top_k = 1'000'000; }), "");
  EXPECT_NE(refused([](Request& r) { r.sampling.best_of = 3, r.return_logits = true; }), "");
  // Nothing of that has hurt.
  EXPECT_EQ(ask(engine, right).ids.size(), 3u);
}

TEST_F(EngineTest, TemplateSaysWhatEndsATurn) {
  const auto session = load();
  ASSERT_TRUE(session->text().end_of_turn().has_value());
  EXPECT_EQ(*session->text().end_of_turn(), 257);
  EXPECT_TRUE(session->is_end_token(257));
  EXPECT_FALSE(session->is_end_token(258));
}

// What the head reads times the head is the logits, and what a model of one block has behind it is
// what a second block reads.
TEST_F(EngineTest, HiddenStatesOfABatch) {
  const std::vector<std::vector<std::int32_t>> texts{{1, 2, 3}, {7}, {9, 8, 7, 6, 5}};
  const auto load = [](const std::filesystem::path& folder, SessionLogits rows) {
    SessionOptions options;
    options.model = folder;
    options.backend = "ref";
    options.threads = 1;
    options.sequences = 3;
    options.longest = 300;
    options.logits = rows;
    return ModelSession::load(options);
  };
  using Rows = std::map<std::tuple<std::int32_t, std::size_t, std::int64_t>, std::vector<float>>;
  const auto states_of = [&](ModelSession& session, const std::vector<std::int32_t>& which) {
    Rows rows;
    compute_states(session, {texts, which}, {},
                   [&](std::size_t text, std::int64_t position, std::int32_t state,
                       std::span<const float> row) {
                     rows[{state, text, position}] = {row.begin(), row.end()};
                   });
    return rows;
  };
  const std::filesystem::path folder = test::make_tiny_model("states");
  const std::filesystem::path shorter = test::make_tiny_model("states-short");
  std::string config = read_file(shorter / "config.json");
  const std::string two = "\"num_hidden_layers\": 2";
  ASSERT_NE(config.find(two), std::string::npos) << config;
  config.replace(config.find(two), two.size(), "\"num_hidden_layers\": 1");
  write_file_atomically(shorter / "config.json", config);
  const std::int32_t normed = StateRows::kNormed;
  for (const SessionLogits rows : {SessionLogits::kEveryToken, SessionLogits::kLastOfSequence}) {
    const auto session = load(folder, rows);
    const Rows states = states_of(*session, {0, 1, 2, normed});
    EXPECT_EQ(states.size(), 4u * 9u);
    const auto one = load(shorter, rows);
    for (const auto& [key, row] : states_of(*one, {0, 1})) EXPECT_EQ(states.at(key), row);
    EXPECT_NE(states.at({2, 0, 1}), states.at({1, 0, 1}));
    // The norm's weights are 1 in this model.
    const std::vector<float>& raw = states.at({2, 2, 4});
    double squares = 0;
    for (const float x : raw) squares += static_cast<double>(x) * x;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(raw.size()) + 1e-5);
    for (std::size_t i = 0; i < raw.size(); ++i) {
      EXPECT_NEAR(states.at({normed, 2, 4})[i], raw[i] * factor, 1e-4);
    }
    EXPECT_THROW(states_of(*session, {3}), Error);
  }
}

TEST_F(EngineTest, PaddedLogitsOfABatch) {
  SessionOptions options;
  options.model = test::make_tiny_model("padded");
  options.backend = "ref";
  options.threads = 1;
  options.sequences = 3;
  options.longest = 300;
  const std::vector<std::vector<std::int32_t>> texts{{1, 2, 3}, {7}, {9, 8, 7, 6, 5}};
  // With rows of logits for every token of a step, and with one a sequence.
  for (const SessionLogits rows : {SessionLogits::kEveryToken, SessionLogits::kLastOfSequence}) {
    options.logits = rows;
    const auto session = ModelSession::load(options);
    const PaddedLogits padded = padded_logits(*session, texts);
    EXPECT_EQ(padded.logits.view().shape, (Shape{3, 5, session->vocab()}));
    EXPECT_EQ(padded.lengths, (std::vector<std::int64_t>{3, 1, 5}));
    const auto row = [&](std::int64_t text, std::int64_t position) {
      return std::span(padded.logits.view().as<float>() + (text * 5 + position) * session->vocab(),
                       static_cast<std::size_t>(session->vocab()));
    };
    for (std::size_t i = 0; i < texts.size(); ++i) {
      StepRunner runner(*session);
      Sequence alone = session->new_sequence();
      alone.ids = texts[i];
      alone.reach = static_cast<std::int64_t>(texts[i].size());
      for (std::int64_t t = 0; t < 5; ++t) {
        const auto got = row(static_cast<std::int64_t>(i), t);
        if (t >= padded.lengths[i]) {
          for (const float value : got) ASSERT_EQ(value, 0.0f);
          continue;
        }
        const StepItem item{&alone, 1, LogitRows::kLast};
        const StepLogits one = runner.run({&item, 1});
        for (std::size_t k = 0; k < got.size(); ++k) ASSERT_NEAR(got[k], one.row(0)[k], 1e-4f);
      }
    }
    EXPECT_THROW(padded_logits(*session, {}), Error);
    const std::vector<std::vector<std::int32_t>> wrong{{1}, {5000}};
    EXPECT_THROW(padded_logits(*session, wrong), Error);
  }
}

TEST_F(EngineTest, BatchedStepsEqualSingleOnes) {
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
