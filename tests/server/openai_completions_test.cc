// OpenAI's text completions and running requests, over sockets.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "openai_fixture.h"

namespace bl::test {
namespace {

class OpenAiCompletions : public OpenAiServer {
 protected:
  Json choice(const std::string& members) {
    const HttpAnswer answer = complete(members);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().at("choices").at(0);
  }
};

TEST_F(OpenAiCompletions, EchoPutsThePromptInFront) {
  open();
  const std::string settings = R"("prompt":"a thread","max_tokens":5,"seed":3)";
  const std::string text = choice(settings).at("text");
  EXPECT_EQ(choice(settings + R"(,"echo":true)").at("text"), "a thread" + text);
  const Json only = choice(R"("prompt":"a thread","max_tokens":0,"echo":true)");
  EXPECT_EQ(only.at("text"), "a thread");
  EXPECT_EQ(only.at("finish_reason"), "length");
}

TEST_F(OpenAiCompletions, ASeedIsDrawnForEachRequestThatHasNone) {
  open();
  const auto text_of = [&](const std::string& seed) {
    const Json answer = choice(R"("prompt":"a","max_tokens":16,"temperature":2)" + seed);
    return answer.at("text").dump(-1, ' ', true, Json::error_handler_t::replace);
  };
  EXPECT_NE(text_of(""), text_of(""));
  EXPECT_EQ(text_of(R"(,"seed":7)"), text_of(R"(,"seed":7)"));
}

// As programs that score texts read them: one entry a token, the first without a probability.
TEST_F(OpenAiCompletions, EchoHasTheLogprobsOfThePrompt) {
  open();
  for (const int tokens : {0, 1, 4}) {
    const Json logprobs =
        choice(
            fmt::format(
                R"("prompt":[97,98,99],"max_tokens":{},"echo":true,"logprobs":2,"ignore_eos":true)",
                tokens))
            .at("logprobs");
    const auto size = static_cast<std::size_t>(3 + tokens);
    for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
      ASSERT_EQ(logprobs.at(key).size(), size) << key;
    }
    EXPECT_EQ(logprobs.at("tokens").at(1), "b");
    EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
    EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
    for (std::size_t i = 1; i < size; ++i) {
      EXPECT_LE(logprobs.at("token_logprobs").at(i), 0.0);
      EXPECT_GE(logprobs.at("top_logprobs").at(i).size(), 1u);
    }
    EXPECT_EQ(logprobs.at("text_offset").at(2), 2);
  }
}

// The same probabilities as those of tokens that the model chooses itself.
TEST_F(OpenAiCompletions, LogprobsOfThePromptAreThoseOfAnAnswer) {
  open();
  const Json said = choice(
      R"("prompt":[97,98],"max_tokens":3,"temperature":0,"logprobs":1,"ignore_eos":true,"skip_special_tokens":false)");
  // The tokens of the answer by their numbers, from one more answer.
  const Json chosen = said.at("logprobs").at("token_logprobs");
  const HttpAnswer whole = complete(
      R"("prompt":[97,98],"max_tokens":3,"temperature":0,"logprobs":1,"echo":true,"ignore_eos":true)");
  const Json echoed = whole.json().at("choices").at(0).at("logprobs").at("token_logprobs");
  ASSERT_EQ(echoed.size(), 5u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(echoed.at(i + 2).get<double>(), chosen.at(i).get<double>(), 1e-4);
  }
}

TEST_F(OpenAiCompletions, PromptsComeInAllForms) {
  open();
  const auto count = [&](const std::string& prompt) {
    const HttpAnswer answer =
        complete("\"prompt\":" + prompt + R"(,"max_tokens":2,"n":2,"best_of":3)");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json().at("choices").size();
  };
  EXPECT_EQ(count(R"("a")"), 2u);
  EXPECT_EQ(count(R"("")"), 2u);
  EXPECT_EQ(count(R"(["a","b"])"), 4u);
  EXPECT_EQ(count("[97,98]"), 2u);
  EXPECT_EQ(count("[[97],[98,99]]"), 4u);
}

TEST_F(OpenAiCompletions, WrongParametersAreRefused) {
  open();
  for (const char* members : {
           R"("prompt":"a","suffix":"b")",
           R"("prompt":"a","n":1000000)",
           R"("prompt":"a","best_of":1000000)",
           R"("prompt":"a","logprobs":1000)",
           R"("prompt":"a","prompt_logprobs":-5)",
           R"("prompt":"a","logit_bias":{"100000000":1})",
           R"("prompt":[100000000])",
           R"("prompt":[-1])",
           R"("prompt":"a","echo":"yes")",
           R"("prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"n"}})",
       }) {
    const HttpAnswer answer = complete(members);
    EXPECT_EQ(answer.status, 400) << members << '\n' << answer.body;
    EXPECT_EQ(answer.json().at("error").at("type"), "invalid_request_error");
  }
  for (const char* members : {R"("prompt":"a","top_k":100000,"max_tokens":2)",
                              R"("prompt":"a","logit_bias":{"97":-100},"max_tokens":2)",
                              R"("prompt":"a","unknown_field":[1,2],"max_tokens":2)"}) {
    EXPECT_EQ(complete(members).status, 200) << members;
  }
}

TEST_F(OpenAiCompletions, AnswersKeepToTheFormThatIsAskedFor) {
  open();
  const Json object = choice(
      R"("prompt":"a","max_tokens":300,"response_format":{"type":"json_schema","json_schema":)"
      R"({"name":"n","strict":true,"schema":{"type":"object","properties":{"a":{"enum":[1,2]}},"required":["a"]}}})");
  const Json value = Json::parse(object.at("text").get<std::string>());
  EXPECT_TRUE(value.at("a") == 1 || value.at("a") == 2);
}

// Sampling changes while the request runs: from some token on only one letter is allowed.
TEST_F(OpenAiCompletions, TheSamplingOfARunningRequestCanChange) {
  open({.keys = {"one", "two"}, .admin_keys = {"admin"}});
  RawClient client(server_->port());
  client.send(http_request("POST", "/v1/completions",
                           R"({"prompt":"a","max_tokens":20000,"ignore_eos":true,"stream":true})",
                           "Authorization: Bearer one\r\n"));
  client.read_to("\"id\":\"");
  std::string id = client.read_to("\"");
  ASSERT_TRUE(id.starts_with("cmpl-")) << id;
  id.pop_back();
  const std::string path = "/v1/requests/" + id + "/sampling";
  const std::string change = R"({"allowed_tokens":[122]})";
  EXPECT_EQ(post(path, change, "two").status, 403);
  EXPECT_EQ(post("/v1/requests/cmpl-0/sampling", change, "one").status, 404);
  EXPECT_EQ(post(path, R"({"max_tokens":5})", "one").status, 400);
  EXPECT_EQ(post(path, R"({"temperature":"hot"})", "one").status, 400);
  EXPECT_EQ(post(path, R"({"no_such_field":1})", "one").status, 400);
  const HttpAnswer changed = post(path, change, "one");
  EXPECT_EQ(changed.status, 200) << changed.body;
  EXPECT_EQ(changed.json().at("sampling").at("allowed_tokens"), Json({122}));
  // Tokens that were under way are followed by that letter alone.
  EXPECT_NE(client.read_to("\"text\":\"z"), "");
  EXPECT_NE(client.read_to("\"text\":\"z"), "");
  EXPECT_EQ(post(path, R"({"allowed_tokens":[121]})", "admin").status, 200);
  EXPECT_NE(client.read_to("\"text\":\"y"), "");
  EXPECT_EQ(
      ask(http_request("DELETE", "/v1/requests/" + id, "", "Authorization: Bearer two\r\n")).status,
      403);
  EXPECT_EQ(
      ask(http_request("DELETE", "/v1/requests/" + id, "", "Authorization: Bearer one\r\n")).status,
      200);
  EXPECT_NE(client.read_to("[DONE]"), "");
}

}  // namespace
}  // namespace bl::test
