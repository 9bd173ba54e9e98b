// llama-server's own routes, as its clients read them.
#include <gtest/gtest.h>

#include "http_fixture.h"

namespace bl::test {
namespace {

class LlamaRoutes : public ServerFixture {
 protected:
  Json complete(const std::string& more) {
    const SocketAnswer answer =
        post("/completion", R"({"prompt":"abc","n_predict":4)" + more + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.status == 200 ? answer.json() : Json();
  }
  int status(const std::string& path, const std::string& body) { return post(path, body).status; }
};

TEST_F(LlamaRoutes, AnswerWithTheMembersOfTheOriginal) {
  open();
  const Json answer = complete(R"(,"seed":42,"ignore_eos":true)");
  for (const char* member :
       {"content", "tokens", "stop", "model", "tokens_predicted", "tokens_evaluated",
        "generation_settings", "prompt", "has_new_line", "truncated", "stop_type", "stopping_word",
        "tokens_cached", "timings", "id_slot", "index"}) {
    EXPECT_TRUE(answer.contains(member)) << member;
  }
  EXPECT_EQ(answer["stop"], true);
  EXPECT_EQ(answer["stop_type"], "limit");
  EXPECT_EQ(answer["truncated"], false);
  EXPECT_EQ(answer["tokens_predicted"], 4);
  EXPECT_EQ(answer["tokens_evaluated"], 4) << "BOS and three bytes";
  EXPECT_EQ(answer["tokens"], Json::array());
  EXPECT_EQ(answer["prompt"], "<s>abc");
  EXPECT_EQ(answer["model"], "Tiny");
  const Json& settings = answer["generation_settings"];
  EXPECT_EQ(settings["seed"], 42);
  EXPECT_EQ(settings["n_predict"], 4);
  EXPECT_EQ(settings["repeat_last_n"], 64);
  const Json& timings = answer["timings"];
  EXPECT_EQ(timings["prompt_n"].get<int>() + timings["cache_n"].get<int>(), 4);
  EXPECT_EQ(timings["predicted_n"], 4);
  EXPECT_GT(timings["predicted_per_second"], 0);
  EXPECT_EQ(complete(R"(,"return_tokens":true,"ignore_eos":true)")["tokens"].size(), 4u);
}

TEST_F(LlamaRoutes, StreamTheSameText) {
  open();
  const std::string body = R"({"prompt":"abc","n_predict":12,"seed":5,"ignore_eos":true,"stream":)";
  const Json whole = post("/completion", body + "false}").json();
  const SocketAnswer answer = post("/completion", body + "true}");
  ASSERT_EQ(answer.status, 200);
  EXPECT_NE(answer.field("Content-Type").find("text/event-stream"), std::string::npos);
  const std::vector<Json> lines = answer.data();
  ASSERT_GE(lines.size(), 2u);
  std::string text;
  std::size_t tokens = 0;
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["stop"], false);
    text += lines[i]["content"].get<std::string>();
    tokens += lines[i]["tokens"].size();
  }
  EXPECT_EQ(text, whole["content"]);
  EXPECT_EQ(tokens, 12u);
  EXPECT_EQ(lines.back()["stop"], true);
  EXPECT_EQ(lines.back()["content"], "");
  EXPECT_EQ(lines.back()["timings"]["predicted_n"], 12);
  EXPECT_FALSE(answer.says("[DONE]")) << "this route has no such line";
}

TEST_F(LlamaRoutes, StopAtWordsAndEndTokens) {
  open();
  const std::string greedy =
      post("/completion",
           R"({"prompt":"abc","n_predict":16,"temperature":0,"allowed_tokens":[97,98,99,100]})")
          .json()["content"];
  ASSERT_GE(greedy.size(), 4u);
  const Json stopped =
      complete(R"(,"n_predict":16,"temperature":0,"allowed_tokens":[97,98,99,100],"stop":[)" +
               json_text(Json(greedy.substr(2, 2))) + "]");
  EXPECT_EQ(stopped["stop_type"], "word");
  EXPECT_EQ(stopped["stopping_word"], greedy.substr(2, 2));
  const Json ended = complete(R"(,"logit_bias":[[257,1000]])");
  EXPECT_EQ(ended["stop_type"], "eos");
  EXPECT_EQ(ended["content"], "");
  const Json barred = complete(R"(,"logit_bias":{"257":1000,"a":-100},"ignore_eos":true)");
  EXPECT_EQ(barred["stop_type"], "limit");
}

TEST_F(LlamaRoutes, GiveProbabilities) {
  open();
  const Json answer = complete(R"(,"n_probs":3,"temperature":0,"ignore_eos":true)");
  ASSERT_EQ(answer["completion_probabilities"].size(), 4u);
  for (const Json& token : answer["completion_probabilities"]) {
    EXPECT_LE(token["logprob"], 0.0);
    EXPECT_TRUE(token["bytes"].is_array());
    ASSERT_EQ(token["top_logprobs"].size(), 3u);
    EXPECT_EQ(token["top_logprobs"][0]["id"], token["id"]) << "greedy takes the likeliest";
  }
  const Json after = complete(R"(,"n_probs":2,"post_sampling_probs":true,"ignore_eos":true)");
  for (const Json& token : after["completion_probabilities"]) {
    EXPECT_GT(token["prob"], 0.0);
    EXPECT_LE(token["prob"], 1.0);
    EXPECT_EQ(token["top_probs"].size(), 2u);
  }
  const auto lines =
      post("/completion",
           R"({"prompt":"a","n_predict":5,"n_probs":2,"ignore_eos":true,"stream":true})")
          .data();
  // A last line may have the text of an unfinished character, whose tokens were told before.
  std::size_t tokens = 0;
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    EXPECT_LE(lines[i]["tokens"].size(), 1u);
    EXPECT_EQ(lines[i]["completion_probabilities"].size(), lines[i]["tokens"].size());
    tokens += lines[i]["tokens"].size();
  }
  EXPECT_EQ(tokens, 5u);
}

// What a sampler has taken out has no probability, and is not shown.
TEST_F(LlamaRoutes, ShowNoImpossibleTokens) {
  open();
  const Json answer = complete(
      R"(,"n_probs":9,"top_k":3,"temperature":1,"post_sampling_probs":true,"ignore_eos":true)");
  ASSERT_EQ(answer["completion_probabilities"].size(), 4u);
  for (const Json& token : answer["completion_probabilities"]) {
    EXPECT_EQ(token["top_probs"].size(), 3u) << token;
    for (const Json& one : token["top_probs"]) EXPECT_GT(one["prob"], 0.0) << token;
  }
}

TEST_F(LlamaRoutes, ShowBarredEndTokens) {
  open();
  const Json barred = complete(R"(,"ignore_eos":true)")["generation_settings"]["logit_bias"];
  ASSERT_FALSE(barred.empty());
  for (const Json& each : barred) EXPECT_TRUE(each["bias"].is_null()) << each;
  EXPECT_EQ(complete("")["generation_settings"]["logit_bias"], Json::array());
}

// The first token comes from the prompt's last step, so it has no time of its own.
TEST_F(LlamaRoutes, CountStepsInRates) {
  open();
  const Json one = complete(R"(,"n_predict":1,"ignore_eos":true)")["timings"];
  EXPECT_EQ(one["predicted_per_second"], 0.0);
  EXPECT_EQ(one["predicted_per_token_ms"], 0.0);
  const Json many = complete(R"(,"n_predict":16,"ignore_eos":true)")["timings"];
  EXPECT_NEAR(many["predicted_per_second"].get<double>() * many["predicted_ms"].get<double>(), 15e3,
              1e-3);
}

TEST_F(LlamaRoutes, TellHowFarThePromptIs) {
  open();
  const std::string body =
      "{\"prompt\":\"" + std::string(300, 'p') +
      R"(","n_predict":2,"ignore_eos":true,"stream":true,"return_progress":true,"timings_per_token":true})";
  for (const bool is_again : {false, true}) {
    std::vector<Json> progress;
    for (const Json& line : post("/completion", body).data()) {
      if (line.contains("prompt_progress")) progress.push_back(line);
    }
    ASSERT_GE(progress.size(), 2u) << is_again;
    const Json& first = progress.front()["prompt_progress"];
    EXPECT_EQ(first["total"], 301);
    EXPECT_EQ(first["processed"], first["cache"]);
    EXPECT_EQ(first["cache"] > 0, is_again) << first;
    EXPECT_EQ(progress.front()["timings"]["prompt_n"], 0);
    EXPECT_EQ(progress.front()["timings"]["prompt_ms"], 0.0);
    EXPECT_EQ(progress.back()["prompt_progress"]["processed"], 301);
  }
}

TEST_F(LlamaRoutes, SayThatTheContextIsFull) {
  open();
  const std::string long_prompt = "{\"prompt\":\"" + std::string(1000, 'p') + "\"";
  const Json full = post("/completion", long_prompt + R"(,"ignore_eos":true})").json();
  EXPECT_EQ(full["truncated"], true);
  EXPECT_EQ(full["stop_type"], "limit");
  EXPECT_EQ(
      post("/completion", long_prompt + R"(,"n_predict":2,"ignore_eos":true})").json()["truncated"],
      false);
}

TEST_F(LlamaRoutes, TakePromptsInEveryForm) {
  open();
  const std::string same = R"(,"n_predict":4,"temperature":0,"ignore_eos":true})";
  const auto of = [&](const std::string& prompt) {
    return post("/completion", "{\"prompt\":" + prompt + same);
  };
  const Json text = of("\"abc\"").json();
  EXPECT_EQ(of("[256,97,98,99]").json()["content"], text["content"]);
  EXPECT_EQ(of("[256,\"abc\"]").json()["content"], text["content"]);
  EXPECT_EQ(of("[256,97,\"bc\"]").json()["content"], text["content"]);
  const Json list = of(R"(["abc",[256,97,98,99],"b"])").json();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]["content"], text["content"]);
  EXPECT_EQ(list[1]["content"], text["content"]);
  EXPECT_EQ(list[2]["index"], 2);
  EXPECT_EQ(of(R"(["abc"])").json().size(), 1u);
  for (const char* wrong : {"null", "7", "[]", "[-1]", "[[]]", "[1,null]", "{}", "[4000000000]",
                            R"({"prompt_string":"a","multimodal_data":["AAAA"]})"}) {
    const SocketAnswer refused = of(wrong);
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_EQ(refused.json()["error"]["code"], 400) << refused.body;
  }
}

TEST_F(LlamaRoutes, CountPenaltiesAsTheOriginalDoes) {
  open();
  // The prompt counts, within the last repeat_last_n tokens.
  const auto first = [&](const std::string& more) {
    return post("/completion",
                R"({"prompt":[256,97,97,97],"n_predict":1,"temperature":0,"ignore_eos":true,)"
                R"("return_tokens":true,"logit_bias":[[97,200]])" +
                    more + "}")
        .json()["tokens"][0]
        .get<int>();
  };
  EXPECT_EQ(first(""), 97);
  const std::string heavy =
      R"(,"frequency_penalty":100,"presence_penalty":100,"repeat_penalty":100)";
  EXPECT_NE(first(heavy), 97) << "the prompt counts";
  EXPECT_EQ(first(heavy + R"(,"repeat_last_n":0)"), 97) << "0 switches them off";
  EXPECT_NE(first(heavy + R"(,"repeat_last_n":-1)"), 97);
  EXPECT_EQ(status("/completion", R"({"prompt":"a","repeat_last_n":-2})"), 400);
}

TEST_F(LlamaRoutes, KeepToGrammarsAndRefuseBrokenOnes) {
  open();
  const Json answer = complete(R"(,"grammar":"root ::= \"yes\" | \"no\"","n_predict":8)");
  const std::string text = answer["content"];
  EXPECT_TRUE(text == "yes" || text == "no") << text;
  EXPECT_EQ(status("/completion", R"({"prompt":"a","grammar":"root ::= ("})"), 400);
  EXPECT_EQ(status("/completion", R"({"prompt":"a","json_schema":{"type":"nothing"}})"), 400);
  EXPECT_EQ(status("/completion", R"({"prompt":"a","grammar":"root ::= \"a\"","json_schema":{}})"),
            400);
}

TEST_F(LlamaRoutes, SelectMembersAndSamplers) {
  open();
  const Json some =
      complete(R"(,"response_fields":["content","generation_settings/n_predict","none"])");
  EXPECT_EQ(some.size(), 2u);
  EXPECT_EQ(some["generation_settings/n_predict"], 4);
  const Json settings = complete(
      R"(,"samplers":["top_k","temperature","dry"],"top_k":3,"top_p":0.5)")["generation_settings"];
  EXPECT_EQ(settings["top_k"], 3);
  EXPECT_EQ(settings["top_p"], 1.0) << "a sampler that the list leaves out is off";
}

TEST_F(LlamaRoutes, ComputeThePromptAlone) {
  open();
  const Json answer = post("/completion", R"({"prompt":"abc","n_predict":0})").json();
  EXPECT_EQ(answer["content"], "");
  EXPECT_EQ(answer["tokens_predicted"], 0);
  EXPECT_EQ(answer["tokens_evaluated"], 4);
}

TEST_F(LlamaRoutes, SayThatAPromptIsTooLong) {
  open();
  const SocketAnswer answer =
      post("/completion", "{\"prompt\":\"" + std::string(2000, 'a') + "\"}");
  EXPECT_EQ(answer.status, 400);
  const Json error = answer.json()["error"];
  EXPECT_EQ(error["type"], "exceed_context_size_error");
  EXPECT_EQ(error["n_prompt_tokens"], 2001);
  EXPECT_EQ(error["n_ctx"], 1024);
}

TEST_F(LlamaRoutes, AnswerBothKindsOfClientsAtCompletions) {
  open();
  const Json answer =
      post("/completions", R"({"prompt":"abc","max_tokens":3,"ignore_eos":true})").json();
  EXPECT_EQ(answer["content"], answer["choices"][0]["text"]);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
  EXPECT_TRUE(
      post("/completions", R"({"prompt":"a","max_tokens":2,"stream":true})").says("[DONE]"));
  EXPECT_FALSE(
      post("/v1/completions", R"({"prompt":"a","max_tokens":2})").json().contains("content"));
}

TEST_F(LlamaRoutes, TurnTextIntoTokensAndBack) {
  open();
  EXPECT_EQ(post("/tokenize", R"({"content":"ab"})").json()["tokens"], Json({97, 98}));
  EXPECT_EQ(post("/tokenize", R"({"content":"ab","add_special":true})").json()["tokens"],
            Json({256, 97, 98}));
  EXPECT_EQ(post("/tokenize", R"({"content":"<s>"})").json()["tokens"], Json({256}));
  EXPECT_EQ(post("/tokenize", R"({"content":"<s>","parse_special":false})").json()["tokens"].size(),
            3u);
  const Json pieces = post("/tokenize", R"({"content":"aé","with_pieces":true})").json()["tokens"];
  EXPECT_EQ(pieces[0], (Json{{"id", 97}, {"piece", "a"}}));
  EXPECT_EQ(pieces[1]["piece"], Json({0xc3})) << "a byte that is no text";
  EXPECT_EQ(post("/detokenize", R"({"tokens":[97,98]})").json()["content"], "ab");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[97,1000000]})").status, 200);
  EXPECT_EQ(status("/detokenize", R"({"tokens":[-1]})"), 400);
  EXPECT_EQ(status("/detokenize", R"({"tokens":"a"})"), 400);
  EXPECT_EQ(status("/tokenize", R"({"content":7})"), 400);
}

TEST_F(LlamaRoutes, ShowTheTemplate) {
  open();
  const Json answer =
      post("/apply-template", R"({"messages":[{"role":"user","content":"hi"}]})").json();
  EXPECT_EQ(answer["prompt"], "<s><|user|>hi<|bot|>");
  EXPECT_EQ(status("/apply-template", R"({"messages":7})"), 400);
}

TEST_F(LlamaRoutes, SayThatAModelCannotFillGaps) {
  open();
  const SocketAnswer answer = post("/infill", R"({"input_prefix":"a","input_suffix":"b"})");
  EXPECT_EQ(answer.status, 501);
  EXPECT_EQ(answer.json()["error"]["type"], "not_supported_error");
  EXPECT_EQ(status("/infill", R"({"input_prefix":"a"})"), 400);
  for (const char* extra : {"{}", "{\"filename\":\"ok\"}", "{\"filename\":1,\"text\":\"a\"}",
                            "{\"filename\":\"a\",\"text\":2}", "7"}) {
    EXPECT_EQ(status("/infill", R"({"input_prefix":"a","input_suffix":"b","input_extra":[)" +
                                    std::string(extra) + "]}"),
              400)
        << extra;
  }
}

TEST_F(LlamaRoutes, DescribeModelAndPlaces) {
  open();
  const Json props = get("/props").json();
  EXPECT_EQ(props["total_slots"], 2);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 1024);
  EXPECT_NE(props["chat_template"].get<std::string>().find("<|user|>"), std::string::npos);
  const Json slots = get("/slots").json();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0]["is_processing"], false);
  EXPECT_EQ(slots[1]["id"], 1);
  RawClient busy(port());
  busy.send(post_text("/completion",
                      R"({"prompt":"a","stream":true,"ignore_eos":true,"n_predict":900})"));
  EXPECT_NE(busy.read_to("data: "), "");
  EXPECT_EQ(get("/slots").json()[0]["is_processing"], true);
  busy.close();
  EXPECT_TRUE(becomes_true([&] { return get("/slots").json()[0]["is_processing"] == false; }));
}

TEST_F(LlamaRoutes, AreSwitchedOff) {
  open({.metrics = false, .slots = false});
  for (const char* path : {"/slots", "/metrics"}) {
    const SocketAnswer answer = get(path);
    EXPECT_EQ(answer.status, 501) << path;
    EXPECT_EQ(answer.json()["error"]["type"], "not_supported_error");
  }
}

}  // namespace
}  // namespace bl::test
