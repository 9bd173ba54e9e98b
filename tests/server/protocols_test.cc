// Anthropic's, Ollama's and the responses' routes of a whole server with a tiny model: what the
// recorded requests do not show.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../http/raw_client.h"
#include "answer_judges.h"
#include "calling_model.h"
#include "http_answer.h"
#include "model_server.h"
#include "server/api_server.h"

namespace bl::test {
namespace {

using namespace std::chrono_literals;

class Protocols : public testing::Test {
 protected:
  void open(server::AccessOptions access = {}) {
    server_.emplace(server::ApiServer::Options{.http = {.port = 0}, .access = std::move(access)});
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    model_ = make_calling_model(fmt::format("protocols-{}", test->name()).c_str());
    server_->state().set_model(model_);
    server_->start();
  }
  HttpAnswer ask(std::string_view method, std::string_view target, std::string_view body,
                 std::string_view fields = {}) {
    RawClient client(server_->port());
    client.send(http_request(method, target, body, fields));
    return read_whole_answer(client);
  }
  HttpAnswer post(std::string_view target, std::string_view body) {
    return ask("POST", target, body);
  }

  std::optional<server::ApiServer> server_;
  std::shared_ptr<server::ServedModel> model_;
};

// The same conversation, in the words of each route.
struct Talk {
  const char* path;
  const char* wrong;     // a body with a fault of the client's
  const char* streamed;  // an answer without an end
};
constexpr Talk kTalks[] = {
    {"/v1/messages", R"({"messages":[{"role":"king","content":"Hi"}]})",
     R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":30000,"ignore_eos":true,
         "stream":true})"},
    {"/v1/responses", R"({"input":[{"role":"king","content":"Hi"}]})",
     R"({"input":"Hi","max_output_tokens":30000,"ignore_eos":true,"stream":true})"},
    {"/api/chat", R"({"model":"smollm2","messages":[{"role":"king","content":"Hi"}]})",
     R"({"model":"smollm2","messages":[{"role":"user","content":"Hi"}],
         "options":{"num_predict":30000,"ignore_eos":true}})"},
    {"/api/generate", R"({"model":"smollm2","prompt":"Hi","images":["x"]})",
     R"({"model":"smollm2","prompt":"Hi","options":{"num_predict":30000,"ignore_eos":true}})"},
};

TEST_F(Protocols, ErrorsHaveTheShapeOfTheRoute) {
  open({.keys = {"secret"}});
  const std::string key = "Authorization: Bearer secret\r\n";
  for (const Talk& talk : kTalks) {
    SCOPED_TRACE(talk.path);
    const HttpAnswer refused = ask("POST", talk.path, talk.wrong);
    EXPECT_EQ(refused.status, 401);
    judge_error(talk.path, refused);
    for (const char* body : {talk.wrong, "[1]", "{", ""}) {
      const HttpAnswer answer = ask("POST", talk.path, body, key);
      EXPECT_EQ(answer.status, 400) << body << answer.body;
      judge_error(talk.path, answer);
    }
    const HttpAnswer method = ask("GET", talk.path, "", key);
    EXPECT_EQ(method.status, 405);
    judge_error(talk.path, method);
  }
  const HttpAnswer anthropic = ask("POST", "/v1/messages", kTalks[0].wrong, key);
  EXPECT_EQ(anthropic.json().at("error").at("type"), "invalid_request_error");
  EXPECT_NE(anthropic.body.find("messages[0].role"), std::string::npos);
  EXPECT_EQ(ask("POST", "/v1/messages", kTalks[0].wrong, "x-api-key: secret\r\n").status, 400);
  EXPECT_EQ(ask("POST", "/v1/responses", kTalks[1].wrong, key).json().at("error").at("param"),
            "input[0].role");
}

TEST_F(Protocols, AClientThatLeavesFreesItsRequest) {
  open();
  for (const Talk& talk : kTalks) {
    SCOPED_TRACE(talk.path);
    RawClient client(server_->port());
    client.send(http_request("POST", talk.path, talk.streamed));
    EXPECT_NE(client.read_to("\n"), "");
    EXPECT_TRUE(eventually([&] { return model_->engine().settled_stats().running == 1; }));
    client.close();
    EXPECT_TRUE(eventually([&] { return model_->engine().settled_stats().running == 0; }));
  }
}

TEST_F(Protocols, StreamsHaveALastEventWhenTheServerStops) {
  open();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i : {0, 2}) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    clients.back()->send(http_request("POST", kTalks[i].path, kTalks[i].streamed));
  }
  for (auto& client : clients) EXPECT_NE(client->read_to("content"), "");
  server_->stop(5s);
  EXPECT_NE(clients[0]->read_all().find("event: message_stop\n"), std::string::npos);
  EXPECT_NE(clients[1]->read_all().find(R"("done":true)"), std::string::npos);
}

// The answer is the same whole and in pieces.
TEST_F(Protocols, PiecesAddUpToTheWhole) {
  open();
  const std::string ask_message =
      R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":40,"seed":5)";
  const Json whole = post("/v1/messages", ask_message + "}").json();
  std::string text, pieces;
  for (const Json& block : whole.at("content")) text += block.value("text", "");
  for (const SentEvent& event :
       sent_events(post("/v1/messages", ask_message + R"(,"stream":true})").body)) {
    const Json json = Json::parse(event.data);
    if (event.name == "content_block_delta") pieces += json.at("delta").value("text", "");
  }
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(pieces, text);

  const std::string ask_ollama =
      R"({"model":"smollm2","prompt":"Hi","raw":true,"options":{"num_predict":40,"seed":5})";
  const Json answer = post("/api/generate", ask_ollama + R"(,"stream":false})").json();
  std::string lines;
  for (const Json& line : json_lines(post("/api/generate", ask_ollama + "}").body)) {
    lines += line.at("response").get<std::string>();
  }
  EXPECT_EQ(lines, answer.at("response"));
  EXPECT_GT(answer.at("eval_count"), 0);
}

TEST_F(Protocols, TheContextOfAnAnswerContinuesIt) {
  open();
  const auto generate = [&](const std::string& more) {
    return post("/api/generate",
                R"({"model":"smollm2","prompt":"Hi","stream":false,"options":{"num_predict":4})" +
                    more + "}");
  };
  const Json first = generate("").json();
  const std::int64_t prompt = first.at("prompt_eval_count");
  EXPECT_EQ(first.at("context").size(), prompt + first.at("eval_count").get<std::size_t>());
  const Json second = generate(",\"context\":" + first["context"].dump()).json();
  // The second prompt has no beginning of text of its own.
  EXPECT_EQ(second.at("prompt_eval_count"),
            prompt - 1 + static_cast<std::int64_t>(first["context"].size()));
  for (const char* wrong : {"[-1]", "[320]", "[1.5]", "[\"a\"]", "7", "[99999999999999999999]"}) {
    EXPECT_EQ(generate(std::string(",\"context\":") + wrong).status, 400) << wrong;
  }
  const std::string many = Json(std::vector<int>(40000, 65)).dump();
  EXPECT_EQ(generate(",\"context\":" + many).status, 400);
}

TEST_F(Protocols, CountsTokensOfAnyPrompt) {
  open();
  const auto count = [&](const std::string& text) {
    const HttpAnswer answer = post("/v1/messages/count_tokens",
                                   R"({"messages":[{"role":"user","content":")" + text + "\"}]}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().at("input_tokens").get<int>();
  };
  const int one = count("a");
  EXPECT_EQ(count("aaaa"), one + 3);
  EXPECT_EQ(count(std::string(100000, 'a')), one + 99999);
}

TEST_F(Protocols, NothingIsStored) {
  open();
  const HttpAnswer answer = post("/v1/responses", R"({"input":"Hi","previous_response_id":"x"})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json().at("error").at("param"), "previous_response_id");
}

TEST_F(Protocols, SaysThatItIsRunning) {
  open();
  for (const char* fields : {"", "Accept: */*\r\n"}) {
    const HttpAnswer answer = ask("GET", "/", "", fields);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "Ollama is running");
  }
  EXPECT_NE(ask("GET", "/", "", "Accept: text/html,*/*\r\n").body, "Ollama is running");
  RawClient client(server_->port());
  client.send(http_request("HEAD", "/", ""));
  EXPECT_EQ(HttpAnswer(client.read_to("\r\n\r\n")).status, 200);
  EXPECT_TRUE(ask("GET", "/api/version", "").json().at("version").is_string());
}

}  // namespace
}  // namespace bl::test
