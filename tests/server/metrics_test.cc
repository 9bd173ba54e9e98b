// /metrics, /health and the access log.
#include "server/metrics.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <csignal>
#include <fstream>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "http_fixture.h"
#include "support/data.h"

namespace bl::test {
namespace {

using namespace std::chrono_literals;

class ServerMetrics : public ServerFixture {
 protected:
  // The value of a sample; −1 where there is none.
  double value(const std::string& name, const std::string& labels = R"(model="Tiny")") {
    const std::string text = get("/metrics").body;
    const std::string mark = "\nbitloom:" + name + "{" + labels + "} ";
    const std::size_t at = text.find(mark);
    return at == std::string::npos ? -1 : std::stod(text.substr(at + mark.size()));
  }
};

// The text format 0.0.4: HELP and TYPE once for each family, its samples directly below.
void expect_exposition(const std::string& text) {
  static const std::regex kSample(
      R"(^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-z_]+="[^"\n]*",?)*\})? [-+0-9.eE]+$)");
  std::istringstream lines(text);
  std::set<std::string> families;
  std::set<std::string> samples;
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << line;
    } else if (line.starts_with("# TYPE ")) {
      EXPECT_EQ(line.substr(7, line.find(' ', 7) - 7), family);
    } else {
      EXPECT_TRUE(std::regex_match(line, kSample)) << line;
      EXPECT_TRUE(line.starts_with(family)) << line;
      EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << line;
    }
  }
  EXPECT_GT(families.size(), 20u);
}

TEST_F(ServerMetrics, CountRequestsAndTokens) {
  open();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(post("/v1/completions",
                   R"({"prompt":"abc","max_tokens":5,"ignore_eos":true,"n":2,"seed":1})")
                  .status,
              200);
  }
  EXPECT_EQ(post("/v1/completions", "{}").status, 400);
  EXPECT_TRUE(becomes_true([&] { return value("tokens_predicted_total") == 30; }));
  const char* const good = R"(route="/v1/completions",method="POST",status="200")";
  EXPECT_TRUE(becomes_true([&] { return value("http_requests_total", good) == 3; }));
  EXPECT_EQ(value("prompt_tokens_total") + value("cached_tokens_total"), 3 * 4);
  EXPECT_EQ(value("request_success_total", R"(model="Tiny",finished_reason="length")"), 6);
  EXPECT_EQ(value("time_to_first_token_seconds_count"), 6);
  EXPECT_EQ(value("time_per_output_token_seconds_count"), 6);
  EXPECT_EQ(value("http_requests_total", R"(route="/v1/completions",method="POST",status="400")"),
            1);
  EXPECT_EQ(value("requests_processing"), 0);
  const SocketAnswer answer = get("/metrics");
  expect_exposition(answer.body);
  EXPECT_NE(answer.body.find("\nllamacpp:tokens_predicted_total 30\n"), std::string::npos);
  EXPECT_FALSE(answer.field("Process-Start-Time-Unix").empty());
}

TEST_F(ServerMetrics, CountEmbeddings) {
  open();
  EXPECT_EQ(post("/v1/embeddings", R"({"input":["abc","de"]})").status, 200);
  EXPECT_EQ(value("prompt_tokens_total"), 4 + 3) << "with <s> before each";
  EXPECT_EQ(value("tokens_predicted_total"), 0);
  EXPECT_GT(value("prompt_seconds_total"), 0);
  EXPECT_GT(value("steps_total"), 0);
}

TEST_F(ServerMetrics, AreRightWhileClientsLeave) {
  open();
  const std::string endless = post_text(
      "/v1/completions", R"({"prompt":"a","max_tokens":900,"ignore_eos":true,"stream":true})");
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    clients.back()->send(endless);
  }
  EXPECT_TRUE(becomes_true(
      [&] { return value("requests_processing") == 2 && value("requests_deferred") == 1; }));
  clients.clear();
  EXPECT_TRUE(becomes_true(
      [&] { return value("requests_processing") == 0 && value("requests_deferred") == 0; }));
}

TEST(Histograms, CountUpToEachBound) {
  constexpr std::array kBounds{1.0, 2.0};
  server::Histogram histogram(kBounds);
  for (const double each : {0.5, 1.0, 1.5, 7.0}) histogram.add(each);
  std::string text;
  histogram.write("x", "a=\"b\"", text);
  EXPECT_EQ(text,
            "bitloom:x_bucket{a=\"b\",le=\"1\"} 2\nbitloom:x_bucket{a=\"b\",le=\"2\"} 3\n"
            "bitloom:x_bucket{a=\"b\",le=\"+Inf\"} 4\nbitloom:x_sum{a=\"b\"} 10\n"
            "bitloom:x_count{a=\"b\"} 4\n");
}

class ServerHealth : public ServerFixture {};

TEST_F(ServerHealth, IsBadUntilAModelIsLoaded) {
  open_empty();
  const SocketAnswer loading = get("/health");
  EXPECT_EQ(loading.status, 503);
  EXPECT_EQ(loading.json()["error"]["message"], "Loading model");
  EXPECT_EQ(loading.json()["error"]["type"], "unavailable_error");
  const SocketAnswer refused = post("/v1/completions", R"({"prompt":"a"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["code"], "model_not_loaded");
  set_model();
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/health").json()["status"], "ok");
}

// A request that holds the engine's thread stands for a step that does not end.
TEST_F(ServerHealth, IsBadWhileGenerationIsStuck) {
  open({.health = {.interval = 20ms, .stuck_after = 200ms}});
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool held = true;
  };
  const auto gate = std::make_shared<Gate>();  // the request may outlive this test by a step
  RequestHandle stuck = run_beside(engine(), [gate] {
    std::unique_lock lock(gate->mutex);
    gate->changed.wait(lock, [&] { return !gate->held; });
  });
  RawClient client(port());
  client.send(post_text("/v1/completions", R"({"prompt":"a","max_tokens":3,"stream":true})"));
  EXPECT_TRUE(becomes_true([&] { return get("/health").status == 503; }));
  EXPECT_EQ(get("/health").json()["status"], "stuck");
  EXPECT_EQ(get("/v1/models").status, 200) << "what needs no engine goes on";
  EXPECT_EQ(get("/metrics").status, 200);
  {
    const std::scoped_lock lock(gate->mutex);
    gate->held = false;
  }
  gate->changed.notify_all();
  EXPECT_TRUE(becomes_true([&] { return get("/health").status == 200; }));
  EXPECT_NE(client.read_to("[DONE]"), "");
  stuck.cancel();
}

TEST_F(ServerHealth, RecoversAfterTheCardHas) {
  open({.health = {.interval = 1s, .stuck_after = 10s, .retry = 100ms}});
  server_->books().device_failed = true;
  EXPECT_EQ(get("/health").json()["status"], "device failed");
  EXPECT_TRUE(becomes_true([&] { return get("/health").status == 200; }));
}

class ServerLog : public ServerFixture {
 protected:
  std::filesystem::path file() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    return scratch_dir(test->name()) / "access.log";
  }
  std::vector<Json> lines(const std::filesystem::path& path) {
    server_.reset();  // writes what waits
    std::vector<Json> all;
    std::ifstream stream(path);
    for (std::string line; std::getline(stream, line);) {
      for (const char c : line) EXPECT_TRUE(c >= ' ' && c < 0x7f) << line;
      all.push_back(Json::parse(line));
    }
    return all;
  }
};

TEST_F(ServerLog, HasALineForEachRequestAndNoPrompt) {
  const std::filesystem::path path = file();
  open({.access = {.keys = {"first-key"}}, .access_log = path});
  const std::string key = "Authorization: Bearer first-key\r\n";
  EXPECT_EQ(
      post("/v1/completions", R"({"prompt":"secret words","max_tokens":3,"ignore_eos":true})", key)
          .status,
      200);
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(post("/v1/completions", "{}").status, 401);
  EXPECT_EQ(ask("GET /first-key%1b%5b31m%7f HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 404);
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization first-key\r\n\r\n").status,
            400);
  EXPECT_EQ(get("/v1/models?key=first-key", key).status, 200);
  const std::vector<Json> all = lines(path);
  EXPECT_EQ(all.size(), 6u);
  std::size_t completions = 0;
  for (const Json& line : all) {
    if (line["path"] != "/v1/completions" || line["status"] != 200) continue;
    ++completions;
    EXPECT_EQ(line["key"], "key-1");
    EXPECT_EQ(line["model"], "Tiny");
    EXPECT_EQ(line["generated_tokens"], 3);
    EXPECT_EQ(line["prompt_tokens"], 13);
    EXPECT_EQ(line["finish"], "length");
  }
  EXPECT_EQ(completions, 1u);
  const std::string text = read_file(path);
  EXPECT_EQ(text.find("first-key"), std::string::npos) << "no key, wherever it was put";
  EXPECT_EQ(text.find("secret words"), std::string::npos);
}

TEST_F(ServerLog, HasPromptsWhereThatIsAsked) {
  const std::filesystem::path path = file();
  open({.access_log = path, .log_prompts = true});
  EXPECT_EQ(post("/v1/completions", R"({"prompt":"secret words","max_tokens":3})").status, 200);
  EXPECT_NE(lines(path).at(0)["body"].get<std::string>().find("secret words"), std::string::npos);
}

TEST_F(ServerLog, TellsOfClientsThatLeft) {
  const std::filesystem::path path = file();
  open({.access_log = path});
  {
    RawClient client(port());
    client.send(
        post_text("/v1/completions", R"({"prompt":"a","max_tokens":900,"ignore_eos":true})"));
    EXPECT_TRUE(becomes_true([&] { return stats().running == 1; }));
  }
  EXPECT_TRUE(becomes_true([&] { return stats().running == 0; }));
  EXPECT_TRUE(becomes_true([&] { return server_->http().connections() == 0; }));
  std::this_thread::sleep_for(50ms);
  const std::vector<Json> all = lines(path);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["status"], 499);
}

TEST(AccessLogs, AFullDiskOrALostReaderStopsNothing) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string line(1000, 'x');
  {
    server::AccessLog full("/dev/full");
    for (int i = 0; i < 100; ++i) full.write(line);
    EXPECT_TRUE(becomes_true([&] { return full.dropped() == 100; }));
  }
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  {
    server::AccessLog lost(ends[1]);
    for (int i = 0; i < 100; ++i) lost.write(line);
    EXPECT_TRUE(becomes_true([&] { return lost.dropped() == 100; }));
  }
  ASSERT_EQ(::pipe(ends), 0);
  const auto began = std::chrono::steady_clock::now();
  {
    server::AccessLog unread(ends[1]);
    for (int i = 0; i < 100'000; ++i) unread.write(line);
    EXPECT_GT(unread.dropped(), 0) << "what waits is bounded";
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, 8s);
  ::close(ends[0]);
  EXPECT_THROW(server::AccessLog("/none/here.log"), Error);
}

}  // namespace
}  // namespace bl::test
