// What leaves the cache of a running engine and comes back: through host memory, and through files.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <new>
#include <random>
#include <thread>

#include "backend/sampled_cache_types.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "core_test.h"
#include "engine/engine.h"
#include "engine/prefix_files.h"
#include "fake_model.h"
#include "model/arch_library.h"
#include "support/data.h"
#include "support/error_of.h"
#include "tiny_model.h"

namespace bl {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::FakeModel;

Request request(std::size_t tokens, unsigned seed, std::int64_t max_tokens = 8) {
  Request request;
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < tokens; ++i) {
    request.prompt.push_back(static_cast<std::int32_t>(random() % 250));
  }
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.ignore_end_tokens = true;
  return request;
}

Answer ask(Engine& engine, const Request& request) { return engine.submit(request).wait().front(); }

class RealPages : public testing::TestWithParam<const char*> {
 protected:
  // Nothing where the backend has no such pages for so short heads.
  static std::unique_ptr<ModelSession> load(CacheTypes type, std::size_t kv_host,
                                            const char* extra = "") {
    SessionOptions options;
    options.model = test::make_tiny_model("tiers", extra);
    options.backend = GetParam();
    options.threads = 1;
    options.cache = type;
    options.pages = 4;
    options.kv_host = kv_host;
    try {
      return ModelSession::load(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
      return nullptr;
    }
  }
};

TEST_P(RealPages, EveryTypeComesBackFromTheHost) {
  int types = 0;
  for (const CacheTypes type : test::sampled_cache_types()) {
    SCOPED_TRACE(name_of(type));
    auto session = load(type, 64 << 20);
    if (!session) continue;
    ++types;
    Engine engine(std::move(session));
    const Request first = request(700, 1);
    const Request second = request(800, 2);
    const Answer expected = ask(engine, first);
    EXPECT_EQ(expected.usage.cached_tokens, 0);
    ask(engine, second);
    EXPECT_GT(engine.settled_stats().cache.pages_stored, 0);
    const Answer again = ask(engine, first);
    EXPECT_EQ(again.ids, expected.ids);
    EXPECT_EQ(again.usage.cached_tokens, 699);
    engine.evict();
    EXPECT_EQ(engine.settled_stats().idle_pages, 0);
    const Answer once_more = ask(engine, first);
    EXPECT_EQ(once_more.ids, expected.ids);
    EXPECT_EQ(once_more.usage.cached_tokens, 699);
    EXPECT_GE(engine.settled_stats().cache.pages_restored, 5);
  }
  if (types == 0 && std::string(GetParam()) == "cuda") GTEST_SKIP() << "no card here";
  EXPECT_GE(types, 3);
}

TEST_P(RealPages, EveryTypeGoesThroughAFile) {
  const fs::path file = test::scratch_dir("tiers-file") / "text.prefix";
  int types = 0;
  for (const CacheTypes type : test::sampled_cache_types()) {
    SCOPED_TRACE(name_of(type));
    auto session = load(type, 0);
    if (!session) continue;
    ++types;
    const Request wanted = request(700, 1);
    Answer expected;
    SavedPrefix saved;
    {
      Engine engine(std::move(session));
      expected = ask(engine, wanted);
      saved = engine.save_prefix(wanted, file);
      EXPECT_EQ(saved.tokens, 512);
      EXPECT_EQ(saved.bytes, fs::file_size(file));
    }
    Engine other(load(type, 0));
    EXPECT_EQ(other.load_prefix(file).tokens, 512);
    const Answer answer = ask(other, wanted);
    EXPECT_EQ(answer.usage.cached_tokens, 512);
    EXPECT_EQ(answer.ids, expected.ids);
    // Nobody else may use it.
    Engine wrong(load(type == CacheType::kF32 ? CacheType::kF16 : CacheType::kF32, 0));
    error_of([&] { wrong.load_prefix(file); }, ErrorCode::kInvalidArgument);
    Engine turned(load(type, 0, R"("rope_scaling": {"type": "linear", "factor": 2.0},)"));
    error_of([&] { turned.load_prefix(file); }, ErrorCode::kInvalidArgument);
    EXPECT_EQ(ask(turned, wanted).usage.cached_tokens, 0);
  }
  if (types == 0 && std::string(GetParam()) == "cuda") GTEST_SKIP() << "no card here";
  EXPECT_GE(types, 3);
}

INSTANTIATE_TEST_SUITE_P(Backends, RealPages, testing::Values("ref", "cpu", "cuda"));

TEST(ModelFiles, WeightsTellModelsApart) {
  const fs::path folder = test::scratch_dir("identity");
  const auto model = [&](std::vector<WeightOverride> overrides = {}, int a = 1) {
    OpenedModel opened;
    opened.path = folder;
    opened.files.config = {{"a", a}};
    opened.overrides = std::move(overrides);
    return opened;
  };
  const auto put = [&](std::string_view text) {
    std::ofstream(folder / "model.safetensors", std::ios::binary) << text;
  };
  std::string weights(3 << 20, 'w');
  put(weights);
  const ModelIdentity identity(model());
  const Hash128 hash = identity.hash();
  EXPECT_EQ(ModelIdentity(model()).hash(), hash);
  EXPECT_NE(ModelIdentity(model({}, 2)).hash(), hash);
  EXPECT_NE(ModelIdentity(model(), std::vector<std::int32_t>{0, 0}).hash(), hash);
  const Hash128 overridden = ModelIdentity(model({{"*.mlp.*", folder}})).hash();
  EXPECT_NE(overridden, hash);
  EXPECT_NE(ModelIdentity(model({{"*.q_proj", folder}})).hash(), overridden);
  std::fill_n(weights.begin() + (2 << 20), 1000, 'x');  // less would be between two samples
  put(weights);
  EXPECT_NE(ModelIdentity(model()).hash(), hash);
  put(weights + "w");
  const std::string message =
      error_of([&] { static_cast<void>(identity.hash()); }, ErrorCode::kInvalidFile);
  EXPECT_NE(message.find("has changed since the model was loaded"), std::string::npos) << message;
}

// Keys and values are what the architecture's document makes of config and weights.
TEST(ModelFiles, ArchitecturesTellModelsApart) {
  const fs::path archs = test::scratch_dir("identity-archs");
  const auto hash_with = [&](const fs::path& folder) {
    SessionOptions options = test::textless_session(test::unpacked("hf-tiny") / "llama", "cpu", 1);
    options.archs = folder;
    return ModelSession::load(options)->page_kind().model;
  };
  Json document = *ArchLibrary().document("llama");
  write_file_atomically(archs / "llama.json", document.dump());
  const Hash128 hash = hash_with({});
  EXPECT_EQ(hash_with(archs), hash);
  document["norms"]["unit_offset"] = true;
  write_file_atomically(archs / "llama.json", document.dump());
  EXPECT_NE(hash_with(archs), hash);
}

TEST(RopeIdentity, HoldsEveryChoice) {
  RopeSpec rope;
  const std::string plain = rope_identity({rope});
  rope.linear_scale = 2;
  EXPECT_NE(rope_identity({rope}), plain);
  rope = {};
  rope.long_factor = {1, 2};
  EXPECT_NE(rope_identity({rope}), plain);
  rope = {};
  rope.reversed = true;
  EXPECT_NE(rope_identity({rope}), plain);
}

class PrefixFiles : public testing::Test {
 protected:
  static std::unique_ptr<FakeModel> fake(FakeModel::Options options = {}) {
    return std::make_unique<FakeModel>(options);
  }
  fs::path file_ = test::scratch_dir("prefix-files") / "text.prefix";
};

TEST_F(PrefixFiles, FromOneEngineToAnother) {
  const Request wanted = request(1000, 1);
  const FakeModel oracle({});
  {
    Engine engine(fake(), nullptr, {});
    const std::string none =
        error_of([&] { engine.save_prefix(wanted, file_); }, ErrorCode::kNotFound);
    EXPECT_NE(none.find("no whole page of this text"), std::string::npos) << none;
    ask(engine, wanted);
    EXPECT_EQ(engine.save_prefix(wanted, file_).tokens, 768);
    // A text that goes on in another way has the beginning alone.
    Request other = wanted;
    other.prompt[600] = 251;
    EXPECT_EQ(engine.save_prefix(other, file_.string() + "2").tokens, 512);
    const EngineStats stats = engine.settled_stats();
    EXPECT_EQ(stats.free_pages + stats.idle_pages, stats.pages);
  }
  Engine engine(fake(), nullptr, {});
  EXPECT_EQ(engine.load_prefix(file_).tokens, 768);
  Request salted = wanted;
  salted.cache_salt = "mine";
  EXPECT_EQ(ask(engine, salted).usage.cached_tokens, 0);
  const Answer answer = ask(engine, wanted);
  EXPECT_EQ(answer.usage.cached_tokens, 768);
  EXPECT_EQ(answer.ids, oracle.continuation(wanted.prompt, 8));
  // Loading it again changes nothing.
  engine.load_prefix(file_);
  const EngineStats stats = engine.settled_stats();
  EXPECT_EQ(stats.free_pages + stats.idle_pages, stats.pages);
}

TEST_F(PrefixFiles, PinsAreSavedAndLoaded) {
  Request wanted = request(1000, 1);
  wanted.pin = "system";
  wanted.cache_salt = "tenant";
  {
    Engine engine(fake(), nullptr, {});
    error_of([&] { engine.save_pin("system", file_); }, ErrorCode::kNotFound);
    ask(engine, wanted);
    EXPECT_EQ(engine.settled_stats().pinned_pages, 3);
    EXPECT_EQ(engine.save_pin("system", file_).tokens, 768);
  }
  Engine engine(fake({.pages = 8}), nullptr, {});
  engine.load_prefix(file_, "loaded");
  EXPECT_FALSE(engine.unpin("system"));
  // Once more, where there is not the room for a second copy.
  Engine small(fake({.pages = 4}), nullptr, {});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(small.load_prefix(file_, "loaded").tokens, 768);
  EXPECT_EQ(small.settled_stats().pinned_pages, 3);
  for (unsigned i = 2; i < 6; ++i) ask(engine, request(1100, i));
  engine.evict();
  wanted.pin.clear();
  EXPECT_EQ(ask(engine, wanted).usage.cached_tokens, 768);
  EXPECT_TRUE(engine.unpin("loaded"));
  EXPECT_FALSE(engine.unpin("loaded"));
  engine.evict();
  const EngineStats stats = engine.settled_stats();
  EXPECT_EQ(stats.free_pages, stats.pages);
}

TEST_F(PrefixFiles, SavedFromTheHostToo) {
  Engine engine(fake({.pages = 8}), nullptr, {}, {.host_bytes = 1 << 20});
  const Request wanted = request(1000, 1);
  ask(engine, wanted);
  engine.evict();
  EXPECT_EQ(engine.settled_stats().free_pages, 8);
  EXPECT_EQ(engine.save_prefix(wanted, file_).tokens, 768);
  Engine other(fake(), nullptr, {});
  EXPECT_EQ(other.load_prefix(file_).tokens, 768);
}

TEST_F(PrefixFiles, WhatDoesNotFitIsSaid) {
  {
    Engine engine(fake(), nullptr, {});
    const Request wanted = request(1000, 1);
    ask(engine, wanted);
    engine.save_prefix(wanted, file_);
    // A place that cannot be written to concerns this call alone.
    error_of([&] { engine.save_prefix(wanted, file_.parent_path() / "none" / "x"); },
             ErrorCode::kIo);
    EXPECT_EQ(ask(engine, wanted).usage.cached_tokens, 999);
  }
  Engine other(fake({.identity = 2}), nullptr, {});
  const std::string model =
      error_of([&] { other.load_prefix(file_); }, ErrorCode::kInvalidArgument);
  EXPECT_NE(model.find("saved by model"), std::string::npos) << model;
  Engine words(fake({.vocab = 100}), nullptr, {});
  error_of([&] { words.load_prefix(file_); }, ErrorCode::kInvalidFile);
  Engine small(fake({.pages = 2}), nullptr, {});
  error_of([&] { small.load_prefix(file_); }, ErrorCode::kLimit);
  // Enough pages, but others hold them.
  Engine busy(fake({.pages = 4}), nullptr, {});
  Request held = request(600, 9);
  held.pin = "held";
  ask(busy, held);
  const std::string room = error_of([&] { busy.load_prefix(file_); }, ErrorCode::kLimit);
  EXPECT_NE(room.find("no room for a prefix of 3 pages"), std::string::npos) << room;
  EXPECT_EQ(busy.settled_stats().pinned_pages, 2);
  // Loaded, but too much to be pinned.
  Engine tight(fake({.pages = 3}), nullptr, {});
  error_of([&] { tight.load_prefix(file_, "all"); }, ErrorCode::kLimit);
  std::string bytes = read_file(file_);
  bytes[bytes.size() - 20] ^= 1;
  std::ofstream(file_, std::ios::binary) << bytes;
  Engine engine(fake(), nullptr, {});
  const std::string damaged = error_of([&] { engine.load_prefix(file_); }, ErrorCode::kInvalidFile);
  EXPECT_NE(damaged.find("page 3 of 3 is damaged"), std::string::npos) << damaged;
  for (Engine* one : {&other, &words, &small, &engine}) {
    const EngineStats stats = one->settled_stats();
    EXPECT_EQ(stats.free_pages + stats.idle_pages, stats.pages);
  }
}

TEST_F(PrefixFiles, PinsThatCannotBeAreRefusedAtOnce) {
  Engine engine(fake({.pages = 8}), nullptr, {});
  Request wanted = request(200, 1);
  wanted.pin = "short";
  const std::string small = error_of([&] { engine.submit(wanted); }, ErrorCode::kInvalidArgument);
  EXPECT_NE(small.find("only full pages of 256 tokens"), std::string::npos) << small;
  wanted = request(7 * 256 + 1, 1);
  wanted.pin = "long";
  const std::string large = error_of([&] { engine.submit(wanted); }, ErrorCode::kInvalidArgument);
  EXPECT_NE(large.find("has 7 full pages, and at most 6"), std::string::npos) << large;
  wanted = request(300, 1);
  wanted.pin = std::string(257, 'x');
  const std::string named = error_of([&] { engine.submit(wanted); }, ErrorCode::kInvalidArgument);
  EXPECT_EQ(named, "the name of a pinned prompt has 257 bytes, and at most 256 are allowed");
  error_of([&] { engine.load_prefix(file_, wanted.pin); }, ErrorCode::kInvalidArgument);
  wanted.pin.pop_back();
  EXPECT_EQ(ask(engine, wanted).reason, FinishReason::kMaxTokens);
}

class PrefixFileCalls : public test::CoreTest {};

// The engine's thread is called four times, the last time to let the pages go; a call may find no
// memory, or no engine.
TEST_F(PrefixFileCalls, EachMayFailAndNoPageIsLost) {
  const fs::path file = test::scratch_dir("prefix-file-calls") / "text.prefix";
  for (const bool ends : {false, true}) {
    for (int failing = 1; failing <= 5; ++failing) {
      SCOPED_TRACE(failing);
      start({});
      ask(request(text(600, 1), 4));
      run_all(20);
      asked_.clear();
      int calls = 0;
      const CallEngine call = [&](const std::function<void(EngineCore&)>& what) {
        if (++calls == failing) {
          if (!ends) throw std::bad_alloc();
          core_.reset();
        }
        if (!core_) throw std::future_error(std::future_errc::broken_promise);
        what(*core_);
      };
      const auto save = [&] {
        save_prefix_file(call, {model_->page_kind(), "", text(600, 1)}, file);
      };
      if (failing < 4) {
        EXPECT_ANY_THROW(save());
      } else {
        save();
      }
      EXPECT_EQ(calls, failing == 1 ? 1 : std::min(failing + 1, 4));  // the last one lets go
      if (core_) {
        step();
        expect_no_leak();
      } else {
        EXPECT_EQ(model_->pool().free_pages(), model_->pool().pages());
      }
    }
  }
}

// Who finds too few pages while some are on their way to a file waits for them.
TEST_F(PrefixFileCalls, PagesThatAreLentAreWaitedFor) {
  start({.context = 2048, .pages = 8});
  ask(request(text(1600, 1), 2));
  run_all(20);
  std::shared_ptr<LentPages> lent = core_->lend();
  core_->cache().adopt("", text(1600, 1), *lent->table, lent->cursor);
  Asked& waits = ask(request(text(1500, 2), 2));
  Asked& grows = ask(request(text(250, 3), 400));
  for (int i = 0; i < 500; ++i) step();
  read(waits);
  read(grows);
  EXPECT_FALSE(waits.over());
  EXPECT_FALSE(grows.over());
  lent.reset();
  run_all(600);
  EXPECT_EQ(waits.ids[0], model_->continuation(text(1500, 2), 2));
  EXPECT_EQ(grows.ids[0], model_->continuation(text(250, 3), 400));
  expect_no_leak();
}

// Saving and loading beside requests of others.
TEST_F(PrefixFiles, AmongThreads) {
  const FakeModel oracle({});
  Engine engine(fake({.step_tokens = 128, .logit_rows = 6, .pages = 16}), nullptr, {},
                {.host_bytes = 1 << 16});
  const Request shared = request(600, 1);
  ask(engine, shared);
  engine.save_prefix(shared, file_);
  std::atomic<int> right{0};
  std::vector<std::thread> users;
  for (unsigned user = 0; user < 3; ++user) {
    users.emplace_back([&, user] {
      for (unsigned i = 0; i < 20; ++i) {
        const Request wanted = request(100 + 200 * (i % 5), i % 2 == 0 ? 1 : 10 + user, 20);
        const Answer answer = ask(engine, wanted);
        EXPECT_EQ(answer.ids, oracle.continuation(wanted.prompt, 20)) << answer.error;
        ++right;
      }
    });
  }
  users.emplace_back([&] {
    for (int i = 0; i < 20; ++i) {
      try {
        engine.load_prefix(file_, i % 2 == 0 ? "pin" : "");
        engine.save_prefix(shared, file_.string() + ".again");
      } catch (const Error& error) {  // no room now, or evicted meanwhile
        EXPECT_TRUE(error.code() == ErrorCode::kLimit || error.code() == ErrorCode::kNotFound)
            << error.what();
      }
      engine.unpin("pin");
      engine.evict();
    }
  });
  for (std::thread& user : users) user.join();
  EXPECT_EQ(right, 60);
  EXPECT_GT(engine.settled_stats().cache.pages_restored, 0);
}

}  // namespace
}  // namespace bl
