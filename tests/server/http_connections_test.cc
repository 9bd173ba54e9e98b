// docs/robustness.md, "The server": framing, slow and many connections, shortage.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ctime>
#include <thread>

#include "http_fixture.h"

namespace bl::test {
namespace {

using namespace std::chrono_literals;

class HttpConnections : public ServerFixture {};

const std::string kShort = R"({"prompt":"a","max_tokens":2})";

TEST_F(HttpConnections, PipelinedRequestsHaveTheirOwnRights) {
  open({.access = {.keys = {"first-key"}}});
  RawClient client(port());
  const std::string key = "Authorization: Bearer first-key\r\n";
  client.send(post_text("/v1/completions", kShort, key) + post_text("/v1/completions", kShort) +
              get_text("/v1/models", key) + get_text("/v1/models", "x-api-key: other\r\n") +
              get_text("/health"));
  for (const int status : {200, 401, 200, 401, 200}) {
    EXPECT_EQ(SocketAnswer(client.read_answer()).status, status);
  }
}

TEST_F(HttpConnections, ABodyIsNeverARequest) {
  open({.access = {.keys = {"first-key"}}});
  const std::string inner = get_text("/health");
  RawClient client(port());
  client.send(post_text("/v1/completions", inner) + post_text("/v1/nothing", inner));
  EXPECT_EQ(SocketAnswer(client.read_answer()).status, 401);
  EXPECT_EQ(SocketAnswer(client.read_answer()).status, 404);
  EXPECT_EQ(client.read_all(200ms), "") << "nothing of the bodies was answered";
  // With two lengths the connection ends behind the answer.
  RawClient twice(port());
  twice.send(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
      "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
      inner);
  const std::string all = twice.read_all();
  EXPECT_TRUE(all.starts_with("HTTP/1.1 400")) << all;
  EXPECT_EQ(all.find("HTTP/1.1 ", 1), std::string::npos) << all;
  EXPECT_TRUE(twice.ended());
}

TEST_F(HttpConnections, StayUsableAfterStreamsAndErrors) {
  open();
  RawClient client(port());
  const std::string streamed = R"({"prompt":"a","max_tokens":2,"stream":true})";
  for (const char* path : {"/v1/completions", "/completion", "/api/extra/generate/stream"}) {
    client.send(post_text(path, streamed));
    const SocketAnswer stream = SocketAnswer(client.read_answer());
    EXPECT_EQ(stream.status, 200) << path << " " << stream.body;
    EXPECT_EQ(stream.field("Connection"), "") << path;
    client.send(post_text(path, "{"));
    EXPECT_EQ(SocketAnswer(client.read_answer()).status, 400) << path;
    client.send(post_text(path, kShort));
    EXPECT_EQ(SocketAnswer(client.read_answer()).status, 200) << path;
  }
}

TEST_F(HttpConnections, OldClientsGetNoChunks) {
  open();
  RawClient client(port());
  const std::string body = R"({"prompt":"a","max_tokens":3,"stream":true})";
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  const std::string all = client.read_all();
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(all.find("chunked"), std::string::npos);
  EXPECT_TRUE(all.ends_with("data: [DONE]\n\n")) << all;
}

TEST_F(HttpConnections, SlowHeadersCostNobodyElse) {
  open();
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 300; ++i) {
    slow.push_back(std::make_unique<RawClient>(port()));
    slow.back()->send("POST /v1/completions HTTP/1.1\r\nHost: loc");
  }
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(post("/v1/completions", kShort).status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
}

// A reader that takes nothing makes its own request wait, and no other.
TEST_F(HttpConnections, SlowReadersCostNobodyElse) {
  open();
  RawClient slow(port());
  slow.send(post_text(
      "/v1/completions",
      R"({"prompt":"a","max_tokens":1000,"ignore_eos":true,"stream":true,"logprobs":5})"));
  EXPECT_NE(slow.read_to("data: "), "");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(post("/v1/completions", kShort).status, 200);
}

TEST_F(HttpConnections, TooManyAreClosedAtOnce) {
  open({.http = {.limits = {.connections = 8}}});
  std::vector<std::unique_ptr<RawClient>> all;
  for (int i = 0; i < 20; ++i) all.push_back(std::make_unique<RawClient>(port()));
  EXPECT_TRUE(becomes_true([&] { return server_->http().connections() <= 8; }));
  all.clear();
  EXPECT_TRUE(becomes_true([&] { return get("/health").status == 200; }));
}

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Sets the limit of file descriptors just above what is open.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t spare) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::dup(0);
    ::close(next);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next) + spare;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(HttpConnections, WithoutDescriptorsTheServerWaitsAndRecovers) {
  open();
  EXPECT_EQ(get("/health").status, 200);
  {
    std::vector<int> clients;
    const FewDescriptors few(7);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // More connections than the server has descriptors for: their other ends need some, too.
    for (int i = 0; i < 5; ++i) {
      const int client = ::socket(AF_INET, SOCK_STREAM, 0);
      if (client < 0) break;
      ::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address));
      clients.push_back(client);
    }
    std::this_thread::sleep_for(200ms);
    const double before = processor_seconds();
    std::this_thread::sleep_for(500ms);
    EXPECT_LT(processor_seconds() - before, 0.2) << "the accept loop spins";
    for (const int client : clients) ::close(client);
  }
  EXPECT_TRUE(becomes_true([&] { return get("/health").status == 200; }));
}

TEST_F(HttpConnections, EveryStreamEndsWhenTheServerStops) {
  sequences_ = 4;  // so that the streams and the brake run side by side
  open();
  std::vector<std::pair<const char*, const char*>> kinds{
      {"/v1/completions", R"({"prompt":"a","max_tokens":200,"ignore_eos":true,"stream":true})"},
      {"/completion", R"({"prompt":"a","n_predict":200,"ignore_eos":true,"stream":true})"},
      {"/api/extra/generate/stream",
       R"({"prompt":"a","max_length":200,"ban_eos_token":true,"stream":true})"}};
  std::vector<std::unique_ptr<RawClient>> clients;
  // Slows the engine down, so that the streams are under way when the server stops.
  RequestHandle brake = run_beside(engine(), [] { std::this_thread::sleep_for(20ms); });
  for (const auto& [path, body] : kinds) {
    clients.push_back(std::make_unique<RawClient>(port()));
    clients.back()->send(post_text(path, body));
  }
  EXPECT_NE(clients.front()->read_to("data: "), "");
  EXPECT_TRUE(becomes_true([&] { return server_->state().running() == kinds.size(); }));
  const auto began = std::chrono::steady_clock::now();
  server_->stop(8s);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 8s);
  const char* last[] = {"data: [DONE]\n\n", "\"stop\":true", "\"finish_reason\":\"stop\""};
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const std::string rest = clients[i]->read_all();
    EXPECT_NE(rest.find(last[i]), std::string::npos) << kinds[i].first << "\n" << rest;
    EXPECT_TRUE(clients[i]->ended());
  }
  brake.cancel();
}

}  // namespace
}  // namespace bl::test
