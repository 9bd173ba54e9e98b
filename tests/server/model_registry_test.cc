// Several models: loading on demand, making room, and whoever waits, over real sockets.

#include <fmt/format.h>

#include <fstream>
#include <future>
#include <thread>

#include "../http/raw_client.h"
#include "base/error.h"
#include "base/file.h"
#include "http_fixture.h"
#include "model_server.h"

namespace bl::test {
namespace {

using namespace std::chrono_literals;

class ModelRegistryTest : public ModelServer {
 protected:
  ModelRegistryTest() {
    for (const char* name : {"a", "b", "org/c"}) add_model(name);
  }
  static server::ApiServer::Options room_for(std::uint64_t models) {
    server::ApiServer::Options options;
    options.models.budget.device = models;
    return options;
  }
  // A generation that does not end before its client has read megabytes.
  std::string endless(const std::string& model) const {
    return http_request(
        "POST", "/v1/completions",
        fmt::format(
            R"({{"model":"{}","prompt":"a","n":64,"max_tokens":1000,"ignore_eos":true,"stream":true}})",
            model));
  }
};

// Holds up a load until it is let go or ended.
class Gate {
 public:
  explicit Gate(std::string model) : model_(std::move(model)) {}
  void pass(const server::LoadOrder& order) {
    if (order.names.front() != model_) return;
    reached_ = true;
    while (!open_) {
      order.on_progress(1, 2);
      std::this_thread::sleep_for(1ms);
    }
  }
  void open() { open_ = true; }
  bool reached() const { return reached_; }

 private:
  std::string model_;
  std::atomic<bool> open_{false};
  std::atomic<bool> reached_{false};
};

TEST_F(ModelRegistryTest, ModelsAreLoadedWhenTheyAreAskedFor) {
  open();
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(loads_.load(), 0);
  for (const char* name : {"a", "org/c", "A:latest", "ORG/c"}) {
    const HttpAnswer answer = complete(name);
    ASSERT_EQ(answer.status, 200) << answer.body;
  }
  EXPECT_EQ(complete("org/c").json().at("model"), "org/c");
  EXPECT_EQ(loads_.load(), 2);
  const Json list = get("/v1/models").json().at("data");
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].at("id"), "a");
  EXPECT_EQ(list[0].at("status").at("value"), "loaded");
  EXPECT_EQ(list[1].at("status").at("value"), "unloaded");
  // Without a name, the model that was used last.
  await_unused();
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"a","max_tokens":1})").json().at("model"),
            "org/c");
}

TEST_F(ModelRegistryTest, TheLeastRecentlyUsedModelMakesRoom) {
  open(room_for(2));
  for (const char* name : {"a", "b", "a", "org/c"}) {
    ASSERT_EQ(complete(name).status, 200);
    await_unused();
  }
  EXPECT_EQ(state_of("a"), "loaded");
  EXPECT_EQ(state_of("b"), "unloaded");
  EXPECT_EQ(state_of("org/c"), "loaded");
}

TEST_F(ModelRegistryTest, ASwapWaitsForRequestsThatRun) {
  open(room_for(1));
  RawClient streaming(server_->port());
  streaming.send(endless("a"));
  ASSERT_NE(streaming.read_to("data: {", 30s), "");
  auto other = std::async(std::launch::async, [&] { return complete("b"); });
  EXPECT_TRUE(eventually([&] { return registry().waiting() == 1; }));
  EXPECT_TRUE(eventually([&] { return state_of("a") == "unloading"; }));
  // The stream goes on meanwhile, and new requests for its model wait behind the other one.
  auto behind = std::async(std::launch::async, [&] { return complete("a"); });
  EXPECT_TRUE(eventually([&] { return registry().waiting() == 2; }));
  for (int i = 0; i < 20; ++i) ASSERT_NE(streaming.read_to("data: {"), "");
  EXPECT_EQ(loads_.load(), 1);
  streaming.close();
  EXPECT_EQ(other.get().status, 200);
  EXPECT_EQ(behind.get().status, 200);
  EXPECT_EQ(loads_.load(), 3);
}

TEST_F(ModelRegistryTest, OthersAnswerWhileAModelIsLoaded) {
  Gate gate("b");
  before_load_ = [&](const server::LoadOrder& order) { gate.pass(order); };
  open();
  ASSERT_EQ(complete("a").status, 200);
  auto waiting = std::async(std::launch::async, [&] { return complete("b"); });
  EXPECT_TRUE(eventually([&] { return gate.reached(); }));
  EXPECT_EQ(state_of("b"), "loading");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(complete("a").status, 200);
  EXPECT_EQ(get("/health").status, 200);
  gate.open();
  EXPECT_EQ(waiting.get().status, 200);
}

TEST_F(ModelRegistryTest, TwoClientsTakeTurnsInRoomForOne) {
  open(room_for(1));
  const auto many = [&](const char* name) {
    int good = 0;
    for (int i = 0; i < 8; ++i) {
      const HttpAnswer answer = complete(name);
      good += answer.status == 200 && answer.json().at("model") == name ? 1 : 0;
    }
    return good;
  };
  auto one = std::async(std::launch::async, many, "a");
  auto other = std::async(std::launch::async, many, "b");
  EXPECT_EQ(one.get(), 8);
  EXPECT_EQ(other.get(), 8);
}

TEST_F(ModelRegistryTest, AHundredRequestsOverThreeModels) {
  open(room_for(2));
  const char* names[] = {"a", "b", "org/c"};
  std::vector<std::future<int>> clients;
  for (int client = 0; client < 10; ++client) {
    clients.push_back(std::async(std::launch::async, [&, client] {
      int good = 0;
      for (int i = 0; i < 10; ++i) {
        const char* name = names[(client + i) % 3];
        const HttpAnswer answer = complete(name);
        good += answer.status == 200 && answer.json().at("model") == name ? 1 : 0;
      }
      return good;
    }));
  }
  for (auto& client : clients) EXPECT_EQ(client.get(), 10);
  EXPECT_EQ(registry().waiting(), 0u);
}

TEST_F(ModelRegistryTest, AClientThatLeavesStopsWaiting) {
  Gate gate("a");
  before_load_ = [&](const server::LoadOrder& order) { gate.pass(order); };
  open();
  auto first = std::make_unique<RawClient>(server_->port());
  first->send(completion_request("a"));
  EXPECT_TRUE(eventually([&] { return gate.reached(); }));
  auto queued = std::make_unique<RawClient>(server_->port());
  queued->send(completion_request("b"));
  EXPECT_TRUE(eventually([&] { return state_of("b") == "queued"; }));
  EXPECT_EQ(registry().waiting(), 2u);
  queued.reset();
  EXPECT_TRUE(eventually([&] { return registry().waiting() == 1; }));
  EXPECT_EQ(state_of("b"), "unloaded");
  first.reset();
  EXPECT_TRUE(eventually([&] { return registry().waiting() == 0; }));
  gate.open();
  EXPECT_TRUE(eventually([&] { return state_of("a") == "loaded"; }));
  EXPECT_EQ(loads_.load(), 1);
}

TEST_F(ModelRegistryTest, PinnedModelsStayAndTheAnswerSaysSo) {
  open(room_for(1));
  const auto pinned = load_tiny(folder_ / "a", {"Pinned"});
  server_->state().set_model(pinned);
  const HttpAnswer refused = complete("b");
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.has("Retry-After:"));
  EXPECT_EQ(refused.json().at("error").at("code"), "no_memory_for_model");
  EXPECT_EQ(complete("pinned").status, 200);
  registry().keep_alive(*pinned, 0ms);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(state_of("Pinned"), "loaded");
}

TEST_F(ModelRegistryTest, PatienceWithRunningRequestsEnds) {
  server::ApiServer::Options options = room_for(1);
  options.models.patience = 1s;
  open(std::move(options));
  RawClient streaming(server_->port());
  streaming.send(endless("a"));
  ASSERT_NE(streaming.read_to("data: {", 30s), "");
  const HttpAnswer refused = complete("b");
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.has("Retry-After:"));
  EXPECT_NE(streaming.read_to("data: {"), "");
  EXPECT_EQ(state_of("a"), "loaded");
}

TEST_F(ModelRegistryTest, TooManyWaitersAreRefused) {
  Gate gate("a");
  before_load_ = [&](const server::LoadOrder& order) { gate.pass(order); };
  server::ApiServer::Options options;
  options.models.most_waiting = 1;
  open(std::move(options));
  auto first = std::async(std::launch::async, [&] { return complete("a"); });
  EXPECT_TRUE(eventually([&] { return registry().waiting() == 1; }));
  EXPECT_EQ(complete("a").status, 503);
  EXPECT_EQ(complete("b").status, 503);
  gate.open();
  EXPECT_EQ(first.get().status, 200);
}

TEST_F(ModelRegistryTest, IdleModelsGoAndKeepAliveDecidesWhen) {
  server::ApiServer::Options options;
  options.models.idle_time = 300ms;
  open(std::move(options));
  ASSERT_EQ(complete("a").status, 200);
  EXPECT_EQ(state_of("a"), "loaded");
  EXPECT_TRUE(eventually([&] { return state_of("a") == "unloaded"; }));
  const auto embed = [&](const char* keep) {
    return post("/api/embed", fmt::format(R"({{"model":"b","input":"x","keep_alive":{}}})", keep));
  };
  ASSERT_EQ(embed("\"-1\"").status, 200);
  std::this_thread::sleep_for(600ms);
  EXPECT_EQ(state_of("b"), "loaded");
  ASSERT_EQ(embed("0").status, 200);
  EXPECT_TRUE(eventually([&] { return state_of("b") == "unloaded"; }));
  ASSERT_EQ(embed("\"1h30m\"").status, 200);
  std::this_thread::sleep_for(600ms);
  EXPECT_EQ(state_of("b"), "loaded");
  for (const char* wrong : {"\"soon\"", "\"5x\"", "true", "\"\"", "\"-\""}) {
    EXPECT_EQ(embed(wrong).status, 400) << wrong;
  }
}

TEST_F(ModelRegistryTest, NoNameLeadsOutOfTheFolder) {
  const std::string beside = folder_.filename().string() + "-outside";
  add_model("../" + beside);
  std::filesystem::create_directory_symlink(folder_ / ".." / beside, folder_ / "link");
  std::filesystem::create_directory_symlink(folder_ / "a", folder_ / "alias");
  open_with_keys();
  const std::string names[] = {"../" + beside,
                               "a/../../" + beside,
                               "..",
                               ".",
                               "/etc",
                               (folder_ / "a").string(),
                               "./a",
                               "a/",
                               "a//",
                               "link",
                               std::string("a\0", 2),
                               "a%2f",
                               std::string(100'000, 'x'),
                               "org",
                               "org\\c"};
  for (const std::string& name : names) {
    const Json body = {{"model", name}, {"model_name", name}, {"prompt", "a"}, {"max_tokens", 1}};
    EXPECT_EQ(post("/v1/completions", body.dump(), "user").status, 404) << name.substr(0, 40);
    EXPECT_EQ(post("/v1/model/load", body.dump(), "admin").status, 404) << name.substr(0, 40);
    EXPECT_EQ(post("/models/load", body.dump(), "admin").status, 404) << name.substr(0, 40);
    EXPECT_EQ(post("/v1/model/unload", body.dump(), "admin").status, 404) << name.substr(0, 40);
  }
  EXPECT_EQ(get("/v1/models/..%2f" + beside, "user").status, 404);
  EXPECT_EQ(loads_.load(), 0);
  // A link within the folder is followed.
  EXPECT_EQ(
      post("/v1/completions", R"({"model":"alias","prompt":"a","max_tokens":1})", "user").status,
      200);
}

TEST_F(ModelRegistryTest, AnUnloadEndsALoad) {
  Gate gate("a");
  before_load_ = [&](const server::LoadOrder& order) { gate.pass(order); };
  open_with_keys();
  auto waiting = std::async(std::launch::async, [&] {
    return post("/v1/completions", R"({"model":"a","prompt":"a","max_tokens":1})", "user");
  });
  EXPECT_TRUE(eventually([&] { return gate.reached(); }));
  EXPECT_EQ(post("/v1/model/unload", R"({"model_name":"a"})", "admin").status, 200);
  EXPECT_EQ(waiting.get().status, 503);
  EXPECT_EQ(state_of("a"), "unloaded");
  gate.open();
  EXPECT_EQ(post("/v1/completions", R"({"model":"a","prompt":"a","max_tokens":1})", "user").status,
            200);
  EXPECT_EQ(post("/v1/model/unload", R"({"model_name":"a"})", "admin").status, 200);
  EXPECT_EQ(post("/v1/model/unload", R"({"model_name":"a"})", "admin").status, 400);
}

TEST_F(ModelRegistryTest, AModelThatCannotBeLoadedIsAnAnswer) {
  std::filesystem::create_directories(folder_ / "broken");
  write_file_atomically(folder_ / "broken" / "config.json", "{");
  add_model("torn");
  std::filesystem::resize_file(folder_ / "torn" / "model.safetensors", 100);
  open_with_keys();
  for (const char* name : {"broken", "torn", "broken"}) {
    const std::string body =
        fmt::format(R"({{"model":"{0}","model_name":"{0}","prompt":"a","max_tokens":1}})", name);
    const HttpAnswer answer = post("/v1/completions", body, "user");
    EXPECT_EQ(answer.status, 500) << answer.body;
    EXPECT_EQ(answer.json().at("error").at("code"), "model_load_failed");
    EXPECT_EQ(answer.body.find(folder_.string()), std::string::npos) << answer.body;
    EXPECT_EQ(post("/v1/model/load", body, "admin").status, 500);
    EXPECT_EQ(state_of(name), "unloaded");
  }
  EXPECT_EQ(post("/v1/completions", R"({"model":"a","prompt":"a","max_tokens":1})", "user").status,
            200);
}

TEST_F(ModelRegistryTest, WhereMemoryIsShortAfterAllAnIdleModelGoes) {
  before_load_ = [&](const server::LoadOrder& order) {
    if (order.names.front() == "b" && state_of("a") == "loaded") {
      fail(ErrorCode::kOutOfMemory, "there is too little");
    }
  };
  open();
  ASSERT_EQ(complete("a").status, 200);
  // The request is done with its model shortly after its answer; until then the server is busy.
  EXPECT_TRUE(becomes_true([&] { return complete("b").status == 200; }));
  EXPECT_EQ(state_of("a"), "unloaded");
  before_load_ = [](const server::LoadOrder&) { fail(ErrorCode::kOutOfMemory, "too little"); };
  const HttpAnswer refused = complete("org/c");
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.has("Retry-After:"));
}

TEST_F(ModelRegistryTest, LoadingTellsHowFarItIs) {
  open_with_keys();
  EXPECT_EQ(post("/v1/model/load", "{}", "admin").status, 400);
  const HttpAnswer answer = post("/v1/model/load", R"({"model_name":"a"})", "admin");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const auto events = sent_events(answer.body);
  ASSERT_GE(events.size(), 1u);
  const Json last = Json::parse(events.back().data);
  EXPECT_EQ(last.at("status"), "finished");
  EXPECT_EQ(last.at("model_type"), "model");
  EXPECT_EQ(last.at("module"), last.at("modules"));
  EXPECT_EQ(state_of("a"), "loaded");
  // A loaded model is loaded again where its settings change, and only then.
  EXPECT_EQ(post("/v1/model/load", R"({"model_name":"a"})", "admin").status, 200);
  EXPECT_EQ(loads_.load(), 1);
  EXPECT_EQ(post("/v1/model/load", R"({"model_name":"a","max_seq_len":64})", "admin").status, 200);
  EXPECT_EQ(loads_.load(), 2);
  EXPECT_EQ(post("/models/load", R"({"model":"b"})", "admin").json().at("success"), true);
  EXPECT_TRUE(eventually([&] { return state_of("b") == "loaded"; }));
  EXPECT_EQ(post("/models/unload", R"({"model":"b"})", "admin").json().at("success"), true);
  EXPECT_TRUE(eventually([&] { return state_of("b") == "unloaded"; }));
}

TEST_F(ModelRegistryTest, SettingsThatAreWrongAreForgotten) {
  before_load_ = [](const server::LoadOrder& order) {
    if (order.settings.context > 64) fail(ErrorCode::kInvalidArgument, "too long a context");
  };
  open_with_keys();
  const HttpAnswer refused =
      post("/v1/model/load", R"({"model_name":"a","max_seq_len":65})", "admin");
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_EQ(post("/v1/completions", R"({"model":"a","prompt":"a","max_tokens":1})", "user").status,
            200);
}

TEST_F(ModelRegistryTest, UnloadingWaitsForRequestsOrCancelsThem) {
  open_with_keys();
  const std::string key = "Authorization: Bearer user\r\n";
  RawClient streaming(server_->port());
  streaming.send(http_request(
      "POST", "/v1/completions",
      R"({"model":"a","prompt":"a","n":64,"max_tokens":1000,"ignore_eos":true,"stream":true})",
      key));
  ASSERT_NE(streaming.read_to("data: {", 30s), "");
  auto unloaded = std::async(std::launch::async, [&] {
    return post("/v1/model/unload", R"({"model_name":"a"})", "admin");
  });
  EXPECT_TRUE(eventually([&] { return state_of("a") == "unloading"; }));
  EXPECT_NE(streaming.read_to("data: {"), "");
  auto cancelled = std::async(std::launch::async, [&] {
    return post("/v1/model/unload", R"({"model_name":"a","skip_queue":true})", "admin");
  });
  EXPECT_NE(streaming.read_to("data: [DONE]").find("[DONE]"), std::string::npos);
  EXPECT_EQ(cancelled.get().status, 200);
  EXPECT_EQ(unloaded.get().status, 200);
  EXPECT_EQ(state_of("a"), "unloaded");
}

TEST_F(ModelRegistryTest, StoppingAnswersThoseWhoWait) {
  Gate gate("a");
  before_load_ = [&](const server::LoadOrder& order) { gate.pass(order); };
  open();
  RawClient client(server_->port());
  client.send(completion_request("a"));
  EXPECT_TRUE(eventually([&] { return gate.reached() && registry().waiting() == 1; }));
  server_->stop(5s);
  EXPECT_EQ(HttpAnswer(client.read_answer()).status, 503);
  server_.reset();
}

}  // namespace
}  // namespace bl::test
