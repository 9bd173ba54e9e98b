#include "engine/embedding.h"

#include <gtest/gtest.h>

#include <atomic>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "engine/batch_logits.h"
#include "engine/engine.h"
#include "fake_model.h"
#include "support/data.h"
#include "support/error_of.h"
#include "tiny_model.h"

namespace bl::test {
namespace {

using Texts = std::vector<std::vector<std::int32_t>>;
using Vectors = std::vector<std::vector<float>>;

// Texts shorter and longer than a page, and one that takes several steps.
Texts some_texts() {
  Texts texts;
  for (const std::size_t length : {1u, 3u, 40u, 200u, 17u}) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < length; ++i) {
      ids.push_back(static_cast<std::int32_t>((i * 7 + length) % 250));
    }
    texts.push_back(std::move(ids));
  }
  return texts;
}

// The vectors as their definition says, from the states of whole texts.
Vectors expected(const std::filesystem::path& folder, const Texts& texts, Pooling pooling) {
  SessionOptions options = textless_session(folder, "cpu", 8);
  options.logits = SessionLogits::kEveryToken;
  const auto session = ModelSession::load(options);
  Vectors vectors(texts.size());
  const std::int32_t normed[] = {StateRows::kNormed};
  compute_states(
      *session, {texts, normed}, {},
      [&](std::size_t text, std::int64_t position, std::int32_t, std::span<const float> row) {
        std::vector<float>& vector = vectors[text];
        vector.resize(row.size());
        const auto length = static_cast<std::int64_t>(texts[text].size());
        const bool counts =
            pooling == Pooling::kMean || position == (pooling == Pooling::kLast ? length - 1 : 0);
        if (!counts) return;
        const float share = pooling == Pooling::kMean ? 1.0f / static_cast<float>(length) : 1.0f;
        for (std::size_t k = 0; k < row.size(); ++k) vector[k] += row[k] * share;
      });
  return vectors;
}

void expect_alike(const Vectors& actual, const Vectors& wanted) {
  ASSERT_EQ(actual.size(), wanted.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].size(), wanted[i].size());
    for (std::size_t k = 0; k < actual[i].size(); ++k) {
      EXPECT_NEAR(actual[i][k], wanted[i][k], 2e-3) << "text " << i << ", value " << k;
    }
  }
}

std::unique_ptr<Engine> engine_for(const std::filesystem::path& folder) {
  return std::make_unique<Engine>(ModelSession::load(textless_session(folder, "cpu", 2)));
}

TEST(Embedding, PoolsTheStatesThatTheHeadReads) {
  const auto folder = make_tiny_model("embedding");
  const auto engine = engine_for(folder);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast, Pooling::kFirst}) {
    const Texts texts = some_texts();
    const Vectors vectors = engine->embed({.texts = texts, .pooling = pooling, .normalize = false});
    expect_alike(vectors, expected(folder, texts, pooling));
  }
}

TEST(Embedding, VectorsAreScaledToLengthOne) {
  const auto engine = engine_for(make_tiny_model("embedding"));
  for (const auto& vector : engine->embed({.texts = some_texts()})) {
    double squares = 0;
    for (const float value : vector) squares += static_cast<double>(value) * value;
    EXPECT_NEAR(squares, 1, 1e-5);
  }
}

TEST(Embedding, NeitherRequestsNorEmbeddingsNoticeEachOther) {
  const auto engine = engine_for(make_tiny_model("embedding"));
  const auto alone = engine->submit(greedy_request({1, 2, 3}, 120)).wait().front().ids;
  const EmbedRequest request{.texts = some_texts(), .pooling = Pooling::kMean};
  const Vectors quiet = engine->embed(request);
  RequestHandle one = engine->submit(greedy_request({1, 2, 3}, 120));
  RequestHandle other = engine->submit(greedy_request({1, 2, 3}, 120));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(engine->embed(request), quiet);
  EXPECT_EQ(one.wait().front().ids, alone);
  EXPECT_EQ(other.wait().front().ids, alone);
  const EngineStats stats = engine->settled_stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.free_pages + stats.idle_pages, stats.pages);
}

TEST(Embedding, WaitsForPagesAndMayBeCancelled) {
  const auto engine = engine_for(make_tiny_model("embedding"));
  Request endless = greedy_request({1}, engine->context() - 2);
  RequestHandle one = engine->submit(endless);
  RequestHandle other = engine->submit(endless);
  std::atomic<bool> cancelled{false};
  EmbedRequest request{
      .texts = Texts(1, std::vector<std::int32_t>(static_cast<std::size_t>(engine->context()), 1))};
  request.cancelled = [&] { return cancelled.load(); };
  cancelled = true;
  error_of([&] { engine->embed(request); }, ErrorCode::kCancelled);
  cancelled = false;
  EXPECT_EQ(engine->embed(request).size(), 1u);
}

TEST(Embedding, WrongRequestsAreRefused) {
  const auto engine = engine_for(make_tiny_model("embedding"));
  for (const Texts& wrong :
       {Texts{{}}, Texts{{1}, {-1}}, Texts{{100'000}},
        Texts{std::vector<std::int32_t>(static_cast<std::size_t>(engine->context()) + 1, 1)}}) {
    error_of([&] { engine->embed({.texts = wrong}); }, ErrorCode::kInvalidArgument);
  }
  Engine fake(std::make_unique<FakeModel>(FakeModel::Options{}), nullptr, {});
  error_of([&] { fake.embed({.texts = {{1, 2}}}); }, ErrorCode::kUnsupported);
}

TEST(Embedding, FilesSayHowToPool) {
  const auto folder = scratch_dir("pooling");
  EXPECT_FALSE(read_pooling(folder));
  const auto write = [&](const char* modules, const char* pooling) {
    std::filesystem::create_directories(folder / "1_Pooling");
    write_file_atomically(folder / "modules.json", modules);
    write_file_atomically(folder / "1_Pooling" / "config.json", pooling);
  };
  const char* modules =
      R"([{"path":"","type":"sentence_transformers.models.Transformer"},
          {"path":"1_Pooling","type":"sentence_transformers.models.Pooling"},
          {"path":"2_Normalize","type":"sentence_transformers.models.Normalize"}])";
  write(modules, R"({"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":false})");
  EXPECT_EQ(read_pooling(folder), Pooling::kMean);
  write(modules, R"({"pooling_mode_lasttoken":true})");
  EXPECT_EQ(read_pooling(folder), Pooling::kLast);
  write(modules, R"({"pooling_mode_cls_token":true})");
  EXPECT_EQ(read_pooling(folder), Pooling::kFirst);
  const std::pair<const char*, ErrorCode> wrong[] = {
      {R"({"pooling_mode_max_tokens":true})", ErrorCode::kUnsupported},
      {R"({"pooling_mode_cls_token":true,"pooling_mode_lasttoken":true})", ErrorCode::kUnsupported},
      {R"({"pooling_mode_cls_token":false})", ErrorCode::kInvalidFile},
      {"{", ErrorCode::kInvalidFile}};
  for (const auto& [config, code] : wrong) {
    write(modules, config);
    error_of([&] { read_pooling(folder); }, code);
  }
  for (const auto& [text, code] :
       {std::pair(R"([{"type":"sentence_transformers.models.Dense"}])", ErrorCode::kUnsupported),
        std::pair("{}", ErrorCode::kInvalidFile), std::pair("[1]", ErrorCode::kInvalidFile)}) {
    write(text, "{}");
    error_of([&] { read_pooling(folder); }, code);
  }
}

}  // namespace
}  // namespace bl::test
