// Kobold's routes, as its clients read them.
#include <gtest/gtest.h>

#include <thread>

#include "http_fixture.h"

namespace bl::test {
namespace {

using namespace std::chrono_literals;

class KoboldRoutes : public ServerFixture {
 protected:
  std::string generate(const std::string& more, const std::string& fields = "") {
    const SocketAnswer answer =
        post("/api/v1/generate",
             R"({"prompt":"abc","max_length":6,"use_default_badwordsids":true,"temperature":0,)"
             R"("allowed_tokens":[97,98,99,100,101])" +
                 more + "}",
             fields);
    EXPECT_EQ(answer.status, 200) << answer.body;
    if (answer.status != 200) return {};
    return answer.json()["results"][0]["text"];
  }
};

TEST_F(KoboldRoutes, GenerateWholeAndInPieces) {
  open();
  const std::string text = generate("");
  EXPECT_FALSE(text.empty());
  const SocketAnswer answer =
      post("/api/extra/generate/stream",
           R"({"prompt":"abc","max_length":6,"use_default_badwordsids":true,"temperature":0,)"
           R"("allowed_tokens":[97,98,99,100,101]})");
  ASSERT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.says("event: message\ndata: {")) << answer.body;
  std::string joined;
  for (const Json& piece : answer.data()) joined += piece["token"].get<std::string>();
  EXPECT_EQ(joined, text);
  EXPECT_EQ(answer.data().back()["finish_reason"], "length");
  const Json whole = post("/api/latest/generate", R"({"prompt":"a","max_length":2,"n":2})").json();
  EXPECT_EQ(whole["results"].size(), 2u);
}

TEST_F(KoboldRoutes, ReadTheirOwnNames) {
  open();
  // The prompt counts for penalties, over the whole text where the range is 0.
  const std::string plain = generate(R"(,"logit_bias":{"97":1000})");
  EXPECT_EQ(plain.substr(0, 1), "a");
  EXPECT_NE(
      generate(R"(,"logit_bias":{"97":30},"presence_penalty":100,"rep_pen_range":0)").substr(0, 1),
      "a");
  EXPECT_EQ(
      generate(R"(,"logit_bias":{"97":30},"presence_penalty":100,"rep_pen_range":1)").substr(0, 1),
      "a")
      << "the last token alone counts";
  const std::string text = generate("");
  const std::string stop = text.substr(1, 2);
  const std::string cut = R"(,"stop_sequence":[)" + json_text(Json(stop)) + "]";
  EXPECT_EQ(generate(cut), text.substr(0, text.find(stop)));
  EXPECT_EQ(generate(cut + R"(,"trim_stop":false)"), text.substr(0, text.find(stop) + stop.size()));
  EXPECT_FALSE(
      generate(R"(,"sampler_order":[6,0,1,3,4,2,5],"top_p":0.9,"min_p":0.1,"sampler_seed":4)")
          .empty());
  EXPECT_EQ(post("/api/v1/generate", R"({"prompt":"a","sampler_order":["top_k"]})").status, 400);
  EXPECT_EQ(post("/api/v1/generate", R"({"prompt":7})").status, 400);
  EXPECT_EQ(post("/api/v1/generate", R"({"prompt":"a","max_length":0})").status, 400);
  EXPECT_EQ(post("/api/v1/generate", "[]").json()["detail"]["type"], "bad_input");
}

TEST_F(KoboldRoutes, DropTheBeginningOfALongPrompt) {
  open();
  const SocketAnswer answer =
      post("/api/v1/generate",
           R"({"max_length":8,"memory":"keep","prompt":")" + std::string(3000, 'x') + "\"}");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["results"][0]["prompt_tokens"], 1024 - 8);
}

TEST_F(KoboldRoutes, TellAndEndTheAnswersOfTheirKey) {
  open({.access = {.keys = {"first-key", "second-key"}}});
  const std::string mine = "Authorization: Bearer first-key\r\n";
  const std::string others = "Authorization: Bearer second-key\r\n";
  RawClient client(port());
  client.send(post_text("/api/extra/generate/stream",
                        R"({"prompt":"a","max_length":900,"use_default_badwordsids":true,)"
                        R"("genkey":"G1"})",
                        mine));
  EXPECT_NE(client.read_to("\"token\""), "");
  const auto text_of = [&](const std::string& fields, const char* key = "G1") {
    return post("/api/extra/generate/check", Json{{"genkey", key}}.dump(), fields)
        .json()["results"][0]["text"]
        .get<std::string>();
  };
  const auto ended = [&](const std::string& fields) {
    return post("/api/extra/abort", R"({"genkey":"G1"})", fields).json()["success"];
  };
  EXPECT_TRUE(becomes_true([&] { return !text_of(mine).empty(); }));
  EXPECT_EQ(text_of(mine, "G2"), "");
  EXPECT_EQ(text_of(others), "") << "another key's answer";
  EXPECT_EQ(ended(others), "false");
  EXPECT_EQ(stats().running, 1);
  EXPECT_EQ(ended(mine), "true");
  EXPECT_TRUE(becomes_true([&] { return stats().running == 0; }));
  EXPECT_NE(client.read_to("\r\n0\r\n\r\n"), "") << "the stream ends";
  EXPECT_TRUE(becomes_true([&] {
    return get("/api/extra/generate/check", mine).json()["results"][0]["text"] == "";
  })) << "an answer that is over is forgotten";
}

TEST_F(KoboldRoutes, DescribeThemselves) {
  open();
  EXPECT_EQ(get("/api/v1/model").json()["result"], "bitloom/Tiny");
  EXPECT_EQ(get("/api/latest/model").json()["result"], "bitloom/Tiny");
  EXPECT_EQ(get("/api/v1/info/version").json()["result"], "1.2.5");
  EXPECT_EQ(get("/api/extra/version").json()["result"], "KoboldCpp");
  EXPECT_EQ(get("/api/v1/config/max_context_length").json()["value"], 1024);
  EXPECT_EQ(get("/api/extra/true_max_context_length").json()["value"], 1024);
  EXPECT_EQ(get("/api/v1/config/max_length").json()["value"], 512);
  EXPECT_EQ(get("/api/v1/config/soft_prompts_list").json()["values"], Json::array());
  const Json count = post("/api/extra/tokencount", R"({"prompt":"abc"})").json();
  EXPECT_EQ(count["value"], 4);
  EXPECT_EQ(count["ids"], Json({256, 97, 98, 99}));
  const SocketAnswer none = get("/api/v1/nothing");
  EXPECT_EQ(none.status, 404);
  EXPECT_EQ(none.json()["detail"]["type"], "not_found");
}

}  // namespace
}  // namespace bl::test
