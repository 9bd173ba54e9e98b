// A client that leaves frees its request, in every phase and on every route, and nobody else's.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "http_fixture.h"

namespace bl::test {
namespace {

using namespace std::chrono_literals;

struct Kind {
  const char* path;
  const char* body;
  const char* name;
};

const Kind kKinds[] = {
    {"/v1/completions", R"({"prompt":"a","max_tokens":1000,"ignore_eos":true,"stream":true})",
     "CompletionStream"},
    {"/v1/completions", R"({"prompt":["a","b"],"n":2,"max_tokens":1000,"ignore_eos":true})",
     "Completions"},
    {"/v1/chat/completions",
     R"({"messages":[{"role":"user","content":"a"}],"max_tokens":1000,"ignore_eos":true,"stream":true})",
     "ChatStream"},
    {"/v1/chat/completions",
     R"({"messages":[{"role":"user","content":"a"}],"max_tokens":1000,"ignore_eos":true})", "Chat"},
    {"/completion", R"({"prompt":"a","n_predict":1000,"ignore_eos":true,"stream":true})",
     "LlamaStream"},
    {"/completion", R"({"prompt":"a","n_predict":1000,"ignore_eos":true})", "Llama"},
    {"/api/extra/generate/stream", R"({"prompt":"a","max_length":1000,"ban_eos_token":true})",
     "KoboldStream"},
    {"/api/v1/generate", R"({"prompt":"a","max_length":1000,"ban_eos_token":true})", "Kobold"},
};

// Every phase is held long enough by a request beside it, each of whose tokens takes some time: a
// step of the engine makes one token of every running request.
class LeavingClient : public ServerFixture, public testing::WithParamInterface<Kind> {
 protected:
  void open_slow(std::int64_t places = 3, std::int64_t step_tokens = 0) {
    sequences_ = places;
    EngineOptions options;
    options.step_tokens = step_tokens;
    open({}, std::move(options));
    brake_ = run_beside(engine(), [steps = steps_] {
      ++*steps;
      std::this_thread::sleep_for(20ms);
    });
  }
  std::unique_ptr<RawClient> send(const std::string& text) {
    auto client = std::make_unique<RawClient>(port());
    client->send(text);
    return client;
  }
  bool idle() {
    const EngineStats now = stats();
    return now.running <= 1 && now.waiting == 0 && server_->state().running() == 0;
  }

  std::optional<RequestHandle> brake_;
  // Shared with the engine's thread, which goes on until the base class has ended the server.
  std::shared_ptr<std::atomic<int>> steps_ = std::make_shared<std::atomic<int>>(0);
};

TEST_P(LeavingClient, IsNoticedWhileItsAnswerIsMade) {
  open_slow();
  auto client = send(post_text(GetParam().path, GetParam().body));
  EXPECT_TRUE(becomes_true([&] { return stats().running > 1 && stats().decode_tokens > 20; }));
  client.reset();
  const int left = *steps_;
  EXPECT_TRUE(becomes_true([&] { return idle(); }));
  EXPECT_LT(*steps_ - left, 20) << "long before its thousand tokens";
}

TEST_P(LeavingClient, IsNoticedInTheQueue) {
  open_slow(1);
  auto client = send(post_text(GetParam().path, GetParam().body));
  EXPECT_TRUE(becomes_true([&] { return stats().waiting > 0; }));
  client.reset();
  EXPECT_TRUE(becomes_true([&] { return idle(); }));
}

TEST_P(LeavingClient, IsNoticedHalfClosedToo) {
  open_slow();
  auto client = send(post_text(GetParam().path, GetParam().body));
  EXPECT_TRUE(becomes_true([&] { return stats().running > 1; }));
  client->finish_sending();
  EXPECT_TRUE(becomes_true([&] { return idle(); }));
}

INSTANTIATE_TEST_SUITE_P(Routes, LeavingClient, testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param.name); });

class LeavingClients : public LeavingClient {};
INSTANTIATE_TEST_SUITE_P(Once, LeavingClients, testing::Values(kKinds[0]),
                         [](const auto&) { return std::string("Completion"); });

TEST_P(LeavingClients, DuringThePrompt) {
  open_slow(3, 8);
  const std::string body = "{\"prompt\":\"" + std::string(900, 'x') + "\",\"max_tokens\":50}";
  const std::int64_t before = stats().prefill_tokens;
  auto client = send(post_text("/v1/completions", body));
  EXPECT_TRUE(becomes_true([&] { return stats().prefill_tokens > before + 20; }));
  client.reset();
  EXPECT_TRUE(becomes_true([&] { return idle(); }));
  EXPECT_LT(stats().prefill_tokens, before + 800) << "the rest of the prompt was not computed";
}

TEST_P(LeavingClients, TakeNobodyElseWithThem) {
  sequences_ = 4;
  open();
  const std::string body =
      R"({"prompt":"abc","max_tokens":300,"ignore_eos":true,"seed":7,"stream":true})";
  const SocketAnswer alone = post("/v1/completions", body);
  const auto text_of = [](const SocketAnswer& stream) {
    std::string text;
    for (const Json& chunk : stream.data()) text += chunk["choices"][0]["text"].get<std::string>();
    return text;
  };
  std::atomic<bool> over{false};
  std::vector<std::thread> leavers;
  for (int i = 0; i < 3; ++i) {
    leavers.emplace_back([&, i] {
      while (!over) {
        RawClient client(port());
        client.send(post_text(kKinds[(static_cast<std::size_t>(i) * 2) % 8].path,
                              kKinds[(static_cast<std::size_t>(i) * 2) % 8].body));
        std::this_thread::sleep_for(std::chrono::milliseconds(3 * i + 1));
        client.close();
        // Requests are taken in turn: as many come as this machine can take.
        post("/tokenize", R"({"content":"a"})");
      }
    });
  }
  for (int i = 0; i < 3; ++i) {
    const SocketAnswer answer = post("/v1/completions", body);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(text_of(answer), text_of(alone));
  }
  over = true;
  for (std::thread& thread : leavers) thread.join();
  EXPECT_TRUE(becomes_true([&] { return stats().running == 0 && stats().waiting == 0; }));
  EXPECT_TRUE(becomes_true([&] { return server_->state().running() == 0; }));
}

TEST_P(LeavingClients, BeforeTheBodyIsWhole) {
  open_slow();
  auto client =
      send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{");
  client.reset();
  EXPECT_TRUE(becomes_true([&] { return server_->http().connections() == 0; }));
  EXPECT_TRUE(becomes_true([&] { return idle(); }));
}

}  // namespace
}  // namespace bl::test
