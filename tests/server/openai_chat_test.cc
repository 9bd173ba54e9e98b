// Calls of tools and reasoning in OpenAI's chats, over sockets.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "openai_fixture.h"

namespace bl::test {
namespace {

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","function":{"name":"paint","strict":true,"parameters":{)"
    R"("type":"object","properties":{"colour":{"enum":["red","blue"]},"gate":{"type":"boolean"}},)"
    R"("required":["colour","gate"]}}},{"type":"function","function":{"name":"stop_all"}}])";

void expect_call(const Json& call) {
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_TRUE(call.at("id").get<std::string>().starts_with("call_"));
  const Json arguments = Json::parse(call.at("function").at("arguments").get<std::string>());
  if (call.at("function").at("name") == "stop_all") {
    EXPECT_EQ(arguments, Json::object());
    return;
  }
  EXPECT_EQ(call.at("function").at("name"), "paint");
  EXPECT_TRUE(arguments.at("colour") == "red" || arguments.at("colour") == "blue") << arguments;
  EXPECT_TRUE(arguments.at("gate").is_boolean());
}

// The message that the chunks of a stream add up to.
struct Streamed {
  std::string role, content, reasoning, finish;
  std::map<int, Json> calls;
  bool done = false;
};

Streamed read_stream(const std::string& body) {
  Streamed all;
  for (const SentEvent& event : sent_events(body)) {
    EXPECT_FALSE(all.done);
    if (event.data == "[DONE]") {
      all.done = true;
      continue;
    }
    const Json chunk = Json::parse(event.data);
    if (chunk.at("choices").empty()) continue;
    const Json& choice = chunk.at("choices").at(0);
    const Json& delta = choice.at("delta");
    all.role += delta.value("role", "");
    if (delta.contains("content") && delta["content"].is_string()) {
      all.content += delta["content"].get<std::string>();
    }
    all.reasoning += delta.value("reasoning_content", "");
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      Json& into = all.calls[call.at("index").get<int>()];
      if (into.is_null()) {
        into = call;
        EXPECT_FALSE(call.value("id", "").empty());
      } else {
        EXPECT_FALSE(call.contains("id"));
        into["function"]["arguments"] = into["function"]["arguments"].get<std::string>() +
                                        call.at("function").at("arguments").get<std::string>();
      }
    }
    if (choice.at("finish_reason").is_string()) all.finish = choice.at("finish_reason");
  }
  return all;
}

class OpenAiChat : public OpenAiServer {};

// The chunks of a stream of chat completions, without its last line.
std::vector<Json> chunks_of(const HttpAnswer& answer) {
  std::vector<Json> chunks;
  for (const SentEvent& event : sent_events(answer.body)) {
    if (event.data != "[DONE]") chunks.push_back(Json::parse(event.data));
  }
  return chunks;
}

// llama-server's clients look for these in OpenAI's answers.
TEST_F(OpenAiChat, AnswersHaveTimings) {
  open();
  const Json whole = chat(R"(,"max_tokens":3,"n":2,"ban_eos_token":true)").json();
  EXPECT_EQ(whole.at("timings").at("predicted_n"), 6);
  EXPECT_EQ(
      whole.at("timings").at("prompt_n").get<int>() + whole.at("timings").at("cache_n").get<int>(),
      whole.at("usage").at("prompt_tokens").get<int>());
  for (const bool per_token : {false, true}) {
    const std::string more =
        fmt::format(R"(,"max_tokens":5,"ban_eos_token":true,"stream":true,"timings_per_token":{},)"
                    R"("stream_options":{{"include_usage":true}})",
                    per_token);
    const std::vector<Json> chunks = chunks_of(chat(more));
    ASSERT_GT(chunks.size(), 3u);
    EXPECT_FALSE(chunks.front().contains("timings")) << chunks.front();
    EXPECT_EQ(chunks[1].contains("timings"), per_token) << chunks[1];
    EXPECT_EQ(chunks.back().at("choices"), Json::array());
    EXPECT_EQ(chunks.back().at("timings").at("predicted_n"), 5);
    EXPECT_GT(chunks.back().at("timings").at("predicted_per_second"), 0.0);
  }
}

TEST_F(OpenAiChat, StreamsTellHowFarThePromptIs) {
  open();
  const std::string members =
      R"(,"max_tokens":2,"ignore_eos":true,"stream":true,"return_progress":true,"n":2)";
  for (const bool is_again : {false, true}) {
    const std::vector<Json> chunks = chunks_of(chat(members));
    ASSERT_GE(chunks.size(), 3u);
    EXPECT_EQ(chunks.front().at("choices")[0].at("delta").value("role", ""), "assistant");
    std::vector<Json> progress;
    for (const Json& chunk : chunks) {
      if (chunk.contains("prompt_progress")) progress.push_back(chunk["prompt_progress"]);
    }
    ASSERT_GE(progress.size(), 2u) << is_again;
    EXPECT_EQ(progress.front()["processed"], progress.front()["cache"]);
    EXPECT_EQ(progress.front()["cache"] > 0, is_again) << progress.front();
    EXPECT_EQ(progress.back()["processed"], progress.back()["total"]);
    EXPECT_GT(progress.back()["total"], 0);
  }
  for (const Json& chunk : chunks_of(chat(R"(,"max_tokens":2,"stream":true)"))) {
    EXPECT_FALSE(chunk.contains("prompt_progress")) << chunk;
  }
}

TEST_F(OpenAiChat, ThePromptIsToldWhereItIsAskedFor) {
  open();
  const Json told = chat(R"(,"max_tokens":1,"verbose":true)").json().at("__verbose");
  EXPECT_NE(told.at("prompt").get<std::string>().find("hi"), std::string::npos) << told;
  EXPECT_FALSE(chat(R"(,"max_tokens":1)").json().contains("__verbose"));
}

TEST_F(OpenAiChat, SeveralConversationsAreAnsweredTogether) {
  open();
  const std::string hi = R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":3,"seed":7})";
  const HttpAnswer answer =
      post("/predict", "{\"instances\":[" + hi + "," + hi + "],\"parameters\":{}}");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json predictions = answer.json().at("predictions");
  ASSERT_EQ(predictions.size(), 2u);
  const Json alone = chat(R"(,"max_tokens":3,"seed":7)").json();
  for (const Json& one : predictions) {
    EXPECT_EQ(one.at("object"), "chat.completion");
    EXPECT_EQ(one.at("choices"), alone.at("choices"));
  }
  for (const char* wrong :
       {"{}", R"({"instances":[]})", R"({"instances":[7]})",
        R"({"instances":[{"messages":[],"stream":true}]})", R"({"instances":[{"messages":7}]})"}) {
    EXPECT_EQ(post("/predict", wrong).status, 400) << wrong;
  }
}

TEST_F(OpenAiChat, TokensOfAConversationAreCounted) {
  open();
  const int tokens = chat(R"(,"max_tokens":1)").json().at("usage").at("prompt_tokens");
  const HttpAnswer counted =
      post("/v1/chat/completions/input_tokens", R"({"messages":[{"role":"user","content":"hi"}]})");
  ASSERT_EQ(counted.status, 200) << counted.body;
  EXPECT_EQ(counted.json().at("input_tokens"), tokens);
}

TEST_F(OpenAiChat, ForcedCallsAreMade) {
  open();
  for (int seed = 1; seed <= 4; ++seed) {
    const std::string settings = fmt::format(
        R"({},"tool_choice":"required","reasoning_budget":4,"max_tokens":500,"seed":{})", kTools,
        seed);
    const HttpAnswer answer = chat(settings);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json choice = answer.json().at("choices").at(0);
    const Json& message = choice.at("message");
    ASSERT_TRUE(message.contains("tool_calls")) << message;
    EXPECT_TRUE(choice.at("finish_reason") == "tool_calls" ||
                choice.at("finish_reason") == "length");
    if (choice.at("finish_reason") != "tool_calls") continue;
    for (const Json& call : message.at("tool_calls")) expect_call(call);

    const Streamed stream = read_stream(chat(settings + R"(,"stream":true)").body);
    EXPECT_TRUE(stream.done);
    EXPECT_EQ(stream.role, "assistant");
    EXPECT_EQ(stream.finish, "tool_calls");
    EXPECT_EQ(stream.reasoning, message.value("reasoning_content", ""));
    ASSERT_EQ(stream.calls.size(), message.at("tool_calls").size());
    for (const auto& [index, call] : stream.calls) {
      expect_call(call);
      EXPECT_EQ(call.at("function"),
                message.at("tool_calls").at(static_cast<std::size_t>(index)).at("function"));
    }
  }
}

TEST_F(OpenAiChat, ANamedToolIsCalledOnce) {
  open();
  for (int seed = 1; seed <= 4; ++seed) {
    const HttpAnswer answer =
        chat(fmt::format(R"({},"tool_choice":{{"type":"function","function":{{"name":"paint"}}}},)"
                         R"("reasoning_budget":4,"max_tokens":500,"seed":{})",
                         kTools, seed));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json choice = answer.json().at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
    ASSERT_EQ(choice.at("message").at("tool_calls").size(), 1u);
    expect_call(choice.at("message").at("tool_calls").at(0));
    EXPECT_EQ(choice.at("message").at("tool_calls").at(0).at("function").at("name"), "paint");
    EXPECT_TRUE(choice.at("message").at("content").is_null());
  }
}

// With none, and without tools, nothing is read as a call.
TEST_F(OpenAiChat, NoCallsAreReadWhereNoneAreWanted) {
  open();
  const std::string forced =
      R"(,"grammar":"root ::= \"<tool_call>{\\\"name\\\": \\\"paint\\\", )"
      R"(\\\"arguments\\\": {}}</tool_call>\"","max_tokens":100,"reasoning_budget":0)";
  for (const std::string& tools :
       {std::string(), kTools + std::string(R"(,"tool_choice":"none")")}) {
    const HttpAnswer answer = chat(tools + forced);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json message = answer.json().at("choices").at(0).at("message");
    EXPECT_FALSE(message.contains("tool_calls"));
    EXPECT_EQ(message.at("content"),
              R"(<tool_call>{"name": "paint", "arguments": {}}</tool_call>)");
  }
}

TEST_F(OpenAiChat, ReasoningIsApartUnlessAskedOtherwise) {
  open();
  // The answer's own form applies behind reasoning.
  const Json apart =
      chat(R"(,"structural_tag":{"type":"structural_tag","format":{"type":"const_string",)"
           R"("value":"so"}},"reasoning_budget":0,"max_tokens":100)")
          .json()
          .at("choices")
          .at(0)
          .at("message");
  EXPECT_EQ(apart.at("content").get<std::string>().substr(0, 2), "so");
  const HttpAnswer none = chat(R"(,"reasoning_format":"none","max_tokens":20)");
  ASSERT_EQ(none.status, 200);
  EXPECT_FALSE(none.json().at("choices").at(0).at("message").contains("reasoning_content"));
}

TEST_F(OpenAiChat, WrongToolsAreRefused) {
  open();
  const char* cases[] = {
      R"(,"tool_choice":"required")",
      R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}})",
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string","pattern":"^+a$"}}}}}])",
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"$ref":"#/none"}}}])",
      R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:9/x"}}}}}])",
  };
  for (const char* more : cases) {
    const HttpAnswer answer = chat(more);
    EXPECT_EQ(answer.status, 400) << more << '\n' << answer.body;
    EXPECT_FALSE(answer.json().at("error").at("message").get<std::string>().empty());
  }
}

TEST_F(OpenAiChat, ALimitOfNothingComputesThePromptAlone) {
  open();
  const Json whole = chat(R"(,"max_tokens":0)").json();
  EXPECT_EQ(whole.at("choices").at(0).at("message").at("content"), "");
  EXPECT_EQ(whole.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(whole.at("usage").at("completion_tokens"), 0);
  EXPECT_GT(whole.at("usage").at("prompt_tokens"), 0);
  EXPECT_TRUE(read_stream(chat(R"(,"max_tokens":0,"stream":true)").body).done);
}

// The limit is larger than what fits: it is cut, and no error.
TEST_F(OpenAiChat, LargeLimitsAreCut) {
  open();
  EXPECT_EQ(chat(R"(,"max_tokens":100000000,"stop":"e")").status, 200);
  const HttpAnswer endless = chat(R"(,"max_tokens":-1,"logit_bias":{"257":100})");
  EXPECT_EQ(endless.status, 200) << endless.body;
}

TEST_F(OpenAiChat, PromptsThatDoNotFitSaySoInAllWords) {
  open();
  const std::string word(std::size_t{1} << 16, 'a');
  const HttpAnswer answer =
      post("/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + word + "\"}]}");
  EXPECT_EQ(answer.status, 400);
  const Json error = answer.json().at("error");
  const std::string message = error.at("message");
  const std::int64_t context = model_->engine().context();
  EXPECT_NE(message.find(fmt::format("This model's maximum context length is {} tokens", context)),
            message.npos);
  EXPECT_NE(message.find("exceeds the available context size"), message.npos);
  EXPECT_EQ(error.at("type"), "exceed_context_size_error");
  EXPECT_EQ(error.at("code"), "context_length_exceeded");
  EXPECT_GT(error.at("n_prompt_tokens"), 1 << 16);
  EXPECT_EQ(error.at("n_ctx"), context);
}

}  // namespace
}  // namespace bl::test
