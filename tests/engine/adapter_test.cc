// Adapters of an engine: requests with different ones in the same steps, loaded and unloaded while
// others run.

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "engine/engine.h"
#include "support/data.h"
#include "tiny_model.h"

namespace bl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"attn-r8", "all-r16-rslora", "mlp-r4-bf16", "rank-pattern"};

fs::path folder_of(const std::string& name) { return test::unpacked("lora-llama") / name; }

std::unique_ptr<ModelSession> load(std::int64_t sequences, std::int64_t context = 0) {
  SessionOptions options =
      test::textless_session(test::unpacked("hf-tiny") / "llama", "cpu", sequences);
  options.context = context;
  options.pages = 64;  // nothing is evicted
  return ModelSession::load(options);
}

void load_all(Engine& engine) {
  for (const char* name : kNames) engine.load_adapter(name, folder_of(name));
}

Request request_of(const std::vector<std::int32_t>& prompt, std::int64_t tokens,
                   std::vector<AdapterChoice> adapters) {
  Request request;
  request.prompt = prompt;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = tokens;
  request.ignore_end_tokens = true;
  request.adapters = std::move(adapters);
  return request;
}

std::vector<std::int32_t> prompt_of(std::int64_t tokens) {
  std::vector<std::int32_t> prompt;
  for (std::int64_t i = 0; i < tokens; ++i) {
    prompt.push_back(static_cast<std::int32_t>((i * 29 + 7) % 256));
  }
  return prompt;
}

std::vector<std::int32_t> ids_of(Engine& engine, Request request) {
  const Answer answer = engine.submit(std::move(request)).wait().front();
  EXPECT_NE(answer.reason, FinishReason::kError) << answer.error;
  return answer.ids;
}

// All of one text, so that pages of one mix would show in the answers of another.
std::vector<Request> different_requests() {
  const std::vector<std::int32_t> prompt = prompt_of(40);
  std::vector<Request> requests{request_of(prompt, 24, {})};
  for (const char* name : kNames) requests.push_back(request_of(prompt, 24, {{name, 1.0}}));
  requests.push_back(request_of(prompt, 24, {{"attn-r8", 0.7}, {"mlp-r4-bf16", -0.3}}));
  requests.push_back(request_of(prompt, 24, {{"attn-r8", 0.3}, {"mlp-r4-bf16", -0.7}}));
  requests.push_back(request_of(prompt, 24, {{"all-r16-rslora", 1.5}}));
  requests.push_back(request_of(prompt_of(17), 30, {{"all-r16-rslora", 1.0}}));
  requests.push_back(request_of(prompt_of(33), 11, {}));
  return requests;
}

TEST(EngineAdapters, SameIdsAloneAndTogether) {
  std::vector<std::vector<std::int32_t>> expected;
  for (const Request& request : different_requests()) {
    Engine engine(load(1));
    load_all(engine);
    expected.push_back(ids_of(engine, request));
  }
  // They differ, or nothing would be proven.
  for (std::size_t i = 1; i < 8; ++i) EXPECT_NE(expected[i], expected[0]) << i;
  Engine engine(load(16));
  load_all(engine);
  for (int round = 0; round < 2; ++round) {
    std::vector<RequestHandle> handles;
    for (const Request& request : different_requests()) handles.push_back(engine.submit(request));
    for (std::size_t i = 0; i < handles.size(); ++i) {
      const Answer answer = handles[i].wait().front();
      EXPECT_EQ(answer.ids, expected[i]) << i << ", round " << round;
      // The second time its own pages are there, and only they.
      if (round == 1) {
        EXPECT_GT(answer.usage.cached_tokens, 0) << i;
      }
    }
  }
}

TEST(EngineAdapters, WeightZeroAndOrderChangeNothing) {
  Engine engine(load(1));
  load_all(engine);
  const auto prompt = prompt_of(40);
  const auto plain = ids_of(engine, request_of(prompt, 20, {}));
  Answer answer = engine.submit(request_of(prompt, 20, {{"attn-r8", 0.0}})).wait().front();
  EXPECT_EQ(answer.ids, plain);
  EXPECT_GT(answer.usage.cached_tokens, 0);
  const auto mixed =
      ids_of(engine, request_of(prompt, 20, {{"attn-r8", 0.5}, {"rank-pattern", 2.0}}));
  answer = engine.submit(request_of(prompt, 20, {{"rank-pattern", 2.0}, {"attn-r8", 0.5}}))
               .wait()
               .front();
  EXPECT_EQ(answer.ids, mixed);
  EXPECT_GT(answer.usage.cached_tokens, 0);
}

TEST(EngineAdapters, UnloadedOnesLiveAsLongAsTheirRequests) {
  Engine engine(load(4));
  load_all(engine);
  const Request request = request_of(prompt_of(20), 200, {{"all-r16-rslora", 1.0}});
  const auto expected = ids_of(engine, request);
  Request other = request;
  other.cache_salt = "fresh";
  RequestHandle handle = engine.submit(other);
  Answer answer;
  while (answer.ids.size() < 5) answer.add(*handle.next());
  engine.unload_adapter("all-r16-rslora");
  EXPECT_EQ(engine.adapters().size(), 3u);
  EXPECT_THROW(engine.submit(request), Error);
  EXPECT_THROW(engine.unload_adapter("all-r16-rslora"), Error);
  // Another one takes its name meanwhile.
  engine.load_adapter("all-r16-rslora", folder_of("attn-r8"));
  while (std::optional<Event> event = handle.next()) answer.add(std::move(*event));
  EXPECT_EQ(answer.ids, expected);
  const auto renamed = ids_of(engine, request);
  EXPECT_EQ(renamed, ids_of(engine, request_of(prompt_of(20), 200, {{"attn-r8", 1.0}})));
  EXPECT_NE(renamed, expected);
}

// What a reloaded name has in the cache is another adapter's.
TEST(EngineAdapters, AReloadedNameSharesNoPages) {
  Engine engine(load(1));
  engine.load_adapter("a", folder_of("attn-r8"));
  const Request request = request_of(prompt_of(40), 10, {{"a", 1.0}});
  ids_of(engine, request);
  EXPECT_GT(engine.submit(request).wait().front().usage.cached_tokens, 0);
  // Under another name or at another time, the same weights mean the same pages.
  engine.load_adapter("a", folder_of("attn-r8"));
  EXPECT_GT(engine.submit(request).wait().front().usage.cached_tokens, 0);
  engine.load_adapter("a", folder_of("all-r16-rslora"));
  EXPECT_EQ(engine.adapters().size(), 1u);
  const Answer answer = engine.submit(request).wait().front();
  EXPECT_EQ(answer.usage.cached_tokens, 0);
  Engine fresh(load(1));
  fresh.load_adapter("b", folder_of("all-r16-rslora"));
  EXPECT_EQ(answer.ids, ids_of(fresh, request_of(prompt_of(40), 10, {{"b", 1.0}})));
}

// A file of a text's beginning holds for the weights it was computed with, under whatever name.
TEST(EngineAdapters, PrefixFilesHoldForTheirWeightsAlone) {
  const fs::path file = test::scratch_dir("adapter-prefix") / "text.prefix";
  const Request request = request_of(prompt_of(300), 5, {{"a", 0.5}});
  std::vector<std::int32_t> expected;
  {
    Engine engine(load(1, 512));
    engine.load_adapter("a", folder_of("attn-r8"));
    expected = ids_of(engine, request);
    EXPECT_EQ(engine.save_prefix(request, file).tokens, 256);
  }
  Engine engine(load(1, 512));
  engine.load_prefix(file);
  engine.load_adapter("a", folder_of("all-r16-rslora"));
  engine.load_adapter("b", folder_of("attn-r8"));
  const auto cached = [&](std::vector<AdapterChoice> adapters) {
    return engine.submit(request_of(prompt_of(300), 5, std::move(adapters)))
        .wait()
        .front()
        .usage.cached_tokens;
  };
  EXPECT_EQ(cached({}), 0);
  EXPECT_EQ(cached({{"a", 0.5}}), 0);
  EXPECT_EQ(cached({{"b", 1.0}}), 0);
  const Answer answer = engine.submit(request_of(prompt_of(300), 5, {{"b", 0.5}})).wait().front();
  EXPECT_EQ(answer.usage.cached_tokens, 256);
  EXPECT_EQ(answer.ids, expected);
}

TEST(EngineAdapters, WrongOnesAreRefusedAndNothingElseNotices) {
  Engine engine(load(2));
  engine.load_adapter("a", folder_of("attn-r8"));
  const Request good = request_of(prompt_of(20), 60, {{"a", 1.0}});
  RequestHandle running = engine.submit(good);
  const auto message = [&](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("was taken");
  };
  const auto submit = [&](std::vector<AdapterChoice> adapters) {
    return message([&] { engine.submit(request_of(prompt_of(20), 5, std::move(adapters))); });
  };
  EXPECT_NE(submit({{"b", 1.0}}).find("no adapter 'b' is loaded; there is a"), std::string::npos);
  EXPECT_NE(submit({{"", 1.0}}).find("no adapter"), std::string::npos);
  EXPECT_NE(submit({{"a", NAN}}).find("weight"), std::string::npos);
  EXPECT_NE(submit({{"a", INFINITY}}).find("weight"), std::string::npos);
  EXPECT_NE(submit({{"a", 1e9}}).find("weight"), std::string::npos);
  EXPECT_NE(submit({{"a", 1.0}, {"a", 0.5}}).find("twice"), std::string::npos);
  EXPECT_NE(submit(std::vector<AdapterChoice>(5000, {"a", 1.0})).find("5000"), std::string::npos);
  EXPECT_NE(message([&] { engine.load_adapter("", folder_of("attn-r8")); }).find("name"),
            std::string::npos);
  EXPECT_NE(message([&] { engine.load_adapter("x", "/nowhere"); }).find("no such folder"),
            std::string::npos);
  EXPECT_NE(message([&] { engine.unload_adapter(""); }).find("no adapter"), std::string::npos);
  EXPECT_EQ(engine.adapters().size(), 1u);
  const Answer answer = running.wait().front();
  EXPECT_EQ(answer.reason, FinishReason::kMaxTokens) << answer.error;
  EXPECT_EQ(answer.ids, ids_of(engine, good));
}

// Threads that load, unload and ask; every answer is one of the two that the name has ever meant.
TEST(EngineAdapters, LoadedAndUnloadedAmongThreads) {
  Engine engine(load(8));
  std::vector<std::vector<std::int32_t>> known;
  for (const char* name : {"attn-r8", "mlp-r4-bf16"}) {
    engine.load_adapter("a", folder_of(name));
    known.push_back(ids_of(engine, request_of(prompt_of(12), 8, {{"a", 1.0}})));
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        engine.load_adapter("a", folder_of((i + t) % 2 == 0 ? "attn-r8" : "mlp-r4-bf16"));
        engine.load_adapter("b" + std::to_string(t), folder_of("rank-pattern"));
        engine.unload_adapter("b" + std::to_string(t));
      }
    });
  }
  for (int i = 0; i < 30; ++i) {
    const auto ids = ids_of(engine, request_of(prompt_of(12), 8, {{"a", 1.0}}));
    EXPECT_TRUE(ids == known[0] || ids == known[1]) << i;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine.adapters().size(), 1u);
}

}  // namespace
}  // namespace bl
