// The whole server with a tiny model, as clients on raw sockets meet it.
#include "server/api_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../engine/tiny_model.h"
#include "../http/raw_client.h"
#include "base/json.h"
#include "http_answer.h"
#include "model_server.h"

namespace bl::test {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<server::ServedModel> tiny_model(const char* folder) {
  SessionOptions session;
  session.model = make_tiny_model(folder);
  session.backend = "cpu";
  session.threads = 1;
  session.sequences = 2;
  server::ServedModel::Args args;
  args.engine = std::make_unique<Engine>(ModelSession::load(session));
  args.names = {"Tiny", "other"};
  args.sampling = args.engine->session().defaults().request;
  return std::make_shared<server::ServedModel>(std::move(args));
}

std::string post(const std::string& path, const std::string& body, const std::string& fields = "") {
  return http_request("POST", path, body, fields);
}

class ApiServerTest : public testing::Test {
 protected:
  void open(server::AccessOptions access = {}) {
    server_.emplace(server::ApiServer::Options{.http = {.port = 0}, .access = std::move(access)});
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    model_ = tiny_model(fmt::format("server-{}", test->name()).c_str());
    server_->state().set_model(model_);
    server_->start();
  }
  HttpAnswer ask(const std::string& request) {
    RawClient client(server_->port());
    client.send(request);
    return HttpAnswer(client.read_answer());
  }
  HttpAnswer chat(const std::string& more) {
    return ask(post(
        "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":4,"seed":1)" + more + "}"));
  }
  std::int64_t running() { return model_->engine().settled_stats().running; }

  std::optional<server::ApiServer> server_;
  std::shared_ptr<server::ServedModel> model_;
};

TEST_F(ApiServerTest, AnswersChats) {
  open();
  const HttpAnswer answer = chat("");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  EXPECT_EQ(json.at("object"), "chat.completion");
  EXPECT_EQ(json.at("model"), "Tiny");
  EXPECT_EQ(json.at("usage").at("completion_tokens"), 4);
  const std::string text = json.at("choices").at(0).at("message").at("content");
  const HttpAnswer stream = chat(R"(,"stream":true)");
  ASSERT_EQ(stream.status, 200);
  std::string joined;
  std::size_t at = 0;
  while ((at = stream.body.find("data: {", at)) != std::string::npos) {
    const std::size_t end = stream.body.find("\n\n", at);
    const Json chunk = Json::parse(stream.body.substr(at + 6, end - at - 6));
    const Json content = chunk.at("choices").at(0).at("delta").value("content", Json());
    if (content.is_string()) joined += content.get<std::string>();
    at = end;
  }
  EXPECT_EQ(joined, text);
  EXPECT_NE(stream.body.find("data: [DONE]\n\n"), std::string::npos);
}

TEST_F(ApiServerTest, AnswersCompletionsOfSeveralPrompts) {
  open();
  const HttpAnswer answer =
      ask(post("/v1/completions", R"({"prompt":["a","b"],"n":2,"max_tokens":3})"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json().at("choices").size(), 4u);
  EXPECT_EQ(ask(post("/completions", R"({"prompt":"a","max_tokens":1})")).status, 200);
}

TEST_F(ApiServerTest, KeepsTheConnectionThroughErrorsAndStreams) {
  open();
  RawClient client(server_->port());
  const std::string ok = R"({"prompt":"a","max_tokens":2})";
  const std::string streamed = R"({"prompt":"a","max_tokens":2,"stream":true})";
  for (int i = 0; i < 2; ++i) {
    client.send(post("/v1/completions", "[1]"));
    EXPECT_EQ(HttpAnswer(client.read_answer()).status, 400);
    client.send(post("/v1/completions", streamed));
    EXPECT_EQ(HttpAnswer(client.read_answer()).status, 200);
    client.send(post("/v1/none", "{}"));
    EXPECT_EQ(HttpAnswer(client.read_answer()).status, 404);
    client.send(post("/v1/completions", ok));
    EXPECT_EQ(HttpAnswer(client.read_answer()).status, 200);
  }
}

TEST_F(ApiServerTest, SaysWhatIsWrong) {
  open();
  const std::string deep(100000, '[');
  const std::pair<std::string, int> cases[] = {
      {post("/v1/completions", ""), 400},
      {post("/v1/completions", "{"), 400},
      {post("/v1/completions", "\"text\""), 400},
      {post("/v1/completions", "{\"prompt\":" + deep), 400},
      {post("/v1/completions", R"({"prompt":7})"), 400},
      {post("/v1/completions", R"({"prompt":"a","temperature":"hot"})"), 400},
      {post("/v1/chat/completions", R"({"messages":null})"), 400},
      {post("/v1/chat/completions", R"({"messages":"a"})"), 400},
      {post("/v1/chat/completions", R"({"messages":[{}]})"), 400},
      {post("/v1/completions", R"({"model":"none","prompt":"a"})"), 404},
      {"GET /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
      {"GET /v1/models/none HTTP/1.1\r\nHost: localhost\r\n\r\n", 404},
      {"GET /v1/models/TINY:latest HTTP/1.1\r\nHost: localhost\r\n\r\n", 200},
  };
  for (const auto& [request, status] : cases) {
    const HttpAnswer answer = ask(request);
    EXPECT_EQ(answer.status, status) << request.substr(0, 200) << "\n" << answer.body;
    if (status == 200) continue;
    ASSERT_TRUE(Json::accept(answer.body)) << answer.body;
    EXPECT_FALSE(answer.json().at("error").at("message").get<std::string>().empty());
  }
  EXPECT_EQ(ask(post("/v1/completions", R"({"model":"none","prompt":"a"})"))
                .json()
                .at("error")
                .at("code"),
            "model_not_found");
}

TEST_F(ApiServerTest, AsksForKeys) {
  open({.keys = {"secret"}});
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 200);
  const HttpAnswer refused = ask(post("/v1/completions", R"({"prompt":"a"})"));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.json().at("error").at("code"), "invalid_api_key");
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt":"a","max_tokens":1})",
                     "Authorization: bearer secret\r\n"))
                .status,
            200);
}

// Two sequences run at once, so the third request waits. Leaving ends each, and nobody else's.
TEST_F(ApiServerTest, AClientThatLeavesFreesItsRequest) {
  open();
  const std::string endless = R"({"prompt":"a","max_tokens":100000,"ignore_eos":true,"stream":)";
  RawClient streaming(server_->port());
  streaming.send(post("/v1/completions", endless + "true}"));
  EXPECT_NE(streaming.read_to("data: {"), "");
  auto whole = std::make_unique<RawClient>(server_->port());
  whole->send(post("/v1/completions", endless + "false}"));
  EXPECT_TRUE(eventually([&] { return running() == 2; }));
  auto queued = std::make_unique<RawClient>(server_->port());
  queued->send(post("/v1/completions", endless + "true}"));
  EXPECT_TRUE(eventually([&] { return model_->engine().settled_stats().waiting == 1; }));
  queued.reset();
  EXPECT_TRUE(eventually([&] { return model_->engine().settled_stats().waiting == 0; }));
  whole.reset();
  EXPECT_TRUE(eventually([&] { return running() == 1; }));
  EXPECT_NE(streaming.read_to("data: {"), "");
  streaming.close();
  EXPECT_TRUE(eventually([&] { return running() == 0; }));
  EXPECT_TRUE(eventually([&] { return server_->state().running() == 0; }));
}

TEST_F(ApiServerTest, StreamsHaveALastEventWhenTheServerStops) {
  open();
  RawClient client(server_->port());
  client.send(post("/v1/completions",
                   R"({"prompt":"a","max_tokens":100000,"ignore_eos":true,"stream":true})"));
  EXPECT_NE(client.read_to("data: {"), "");
  server_->stop(5s);
  const std::string rest = client.read_all();
  EXPECT_NE(rest.find("data: [DONE]\n\n"), std::string::npos);
  EXPECT_TRUE(client.ended());
}

}  // namespace
}  // namespace bl::test
