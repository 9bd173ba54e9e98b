// The shapes of chunks, letter by letter.

#include <gtest/gtest.h>

#include "../engine/word_tokenizer.h"
#include "api/chat_chunk.h"
#include "api/chat_stream.h"
#include "api/completion_stream.h"
#include "base/error.h"
#include "read_stream.h"

namespace bl::openai {
namespace {

using test::ReadStream;

const ChunkFrame kFrame{{"chatcmpl-1", 1700000000, "m"}, "chat.completion.chunk", false};

OrderedJson chat_body(const std::string& members) {
  return OrderedJson::parse(R"({"messages":[{"role":"user","content":"Hi"}],"stream":true)" +
                            members + "}");
}

// The choice of a chunk, and the whole chunk but for it.
Json choice_of(const Json& chunk) { return chunk.at("choices").at(0); }
Json rest_of(Json chunk) {
  chunk["choices"] = nullptr;
  return chunk;
}
// A chunk without the name of the program's version.
Json without_version(Json chunk) {
  EXPECT_TRUE(chunk.at("system_fingerprint").get<std::string>().starts_with("bitloom-")) << chunk;
  chunk.erase("system_fingerprint");
  return chunk;
}

class Chunks : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = test::make_word_tokenizer({"Hi", "Ġthere"}, {"</s>"});
  Logprobs logprobs_{*tokenizer_};
  AnswerHead head_{"chatcmpl-1", 1700000000, "m"};
};

TEST_F(Chunks, OfAChat) {
  const auto request = ChatRequest::read(chat_body(R"(,"stream_options":{"include_usage":true})"),
                                         {}, SamplingParams::plain());
  ReadStream stream(head_, request, {0}, logprobs_);
  const std::vector<Json> first = stream.push({.text = "Hi", .ids = {0}});
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(without_version(rest_of(first[0])),
            parse_json(R"({"id":"chatcmpl-1","object":"chat.completion.chunk",
      "created":1700000000,"model":"m","choices":null,"usage":null})",
                       ""));
  EXPECT_EQ(choice_of(first[0]), parse_json(R"({"index":0,"delta":{"role":"assistant",
      "content":null},"logprobs":null,"finish_reason":null})",
                                            ""));
  EXPECT_EQ(rest_of(first[1]), rest_of(first[0]));
  EXPECT_EQ(choice_of(first[1]), parse_json(R"({"index":0,"delta":{"content":"Hi"},
      "logprobs":null,"finish_reason":null})",
                                            ""));
  EXPECT_TRUE(stream.push({.ids = {1}}).empty());  // text that is held back
  const std::vector<Json> last =
      stream.push({.text = " there",
                   .finish = FinishReason::kMaxTokens,
                   .usage = {.prompt_tokens = 5, .cached_tokens = 2, .generated_tokens = 2}});
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(choice_of(last[0]).at("delta"), (Json{{"content", " there"}}));
  EXPECT_EQ(rest_of(last[1]), rest_of(first[0]));
  EXPECT_EQ(choice_of(last[1]), parse_json(R"({"index":0,"delta":{},"logprobs":null,
      "finish_reason":"length","stop_reason":null})",
                                           ""));
  EXPECT_EQ(without_version(*stream.usage_chunk()), parse_json(R"({"id":"chatcmpl-1",
      "object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[],
      "usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,
      "prompt_tokens_details":{"cached_tokens":2},
      "completion_tokens_details":{"reasoning_tokens":0}}})",
                                                               ""));
}

TEST_F(Chunks, OfACompletion) {
  const auto request = CompletionRequest::read(
      OrderedJson::parse(R"({"prompt":["a","b"],"n":2,"stream":true,"logprobs":1,"stop":"x"})"), {},
      SamplingParams::plain());
  CompletionStream stream({"cmpl-1", 1700000000, "m"}, request, {{0}, {1}}, logprobs_);
  EXPECT_FALSE(stream.push(0, {.choice = 1, .prompt_done = 1}).has_value());
  const auto text =
      stream.push(1, {.choice = 1, .text = "Hi", .ids = {0}, .logprobs = {{{0, -1}, {{0, -1}}}}});
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(without_version(*text),
            parse_json(R"({"id":"cmpl-1","object":"text_completion","created":1700000000,
      "model":"m","choices":[{"index":3,"text":"Hi","logprobs":{"tokens":["Hi"],
      "token_logprobs":[-1.0],"top_logprobs":[{"Hi":-1.0}],"text_offset":[0]},
      "finish_reason":null}]})",
                       ""));
  const auto last =
      stream.push(0, {.choice = 1, .finish = FinishReason::kStopString, .stop_string = "x"});
  EXPECT_EQ(choice_of(*last), parse_json(R"({"index":1,"text":"","logprobs":null,
      "finish_reason":"stop","stop_reason":"x"})",
                                         ""));
  EXPECT_FALSE(stream.usage_chunk().has_value());
}

TEST_F(Chunks, LogprobsOfAChat) {
  const auto request =
      ChatRequest::read(chat_body(R"(,"logprobs":true,"n":2)"), {}, SamplingParams::plain());
  ReadStream stream(head_, request, {0}, logprobs_);
  const std::vector<Json> chunks =
      stream.push({.choice = 1, .text = "Hi", .ids = {0}, .logprobs = {{{0, -1}, {}}}});
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(choice_of(chunks[1]), parse_json(R"({"index":1,"delta":{"content":"Hi"},
      "logprobs":{"content":[{"token":"Hi","logprob":-1.0,"bytes":[72,105],"top_logprobs":[]}],
      "refusal":null},"finish_reason":null})",
                                             ""));
}

// The first delta of a call has its id and name, the others go on with its arguments.
TEST_F(Chunks, ToolCalls) {
  const auto delta = [](ToolCallDelta call) {
    return choice_of(ChatChunk{.tool_calls = {std::move(call)}}.json(kFrame)).at("delta");
  };
  EXPECT_EQ(delta({.index = 1, .id = "call_1", .name = "get_weather"}),
            parse_json(R"({"tool_calls":[{"index":1,"id":"call_1","type":"function",
                "function":{"name":"get_weather","arguments":""}}]})",
                       ""));
  EXPECT_EQ(delta({.index = 1, .arguments = "{\"ci"}),
            parse_json(R"({"tool_calls":[{"index":1,"function":{"arguments":"{\"ci"}}]})", ""));
}

TEST_F(Chunks, AnErrorEndsTheStream) {
  const Event failed{
      .finish = FinishReason::kError, .code = ErrorCode::kDevice, .error = "the card has left"};
  const auto chat = ChatRequest::read(chat_body(""), {}, SamplingParams::plain());
  const auto completion =
      CompletionRequest::read(OrderedJson::parse(R"({"prompt":"a"})"), {}, SamplingParams::plain());
  ReadStream chats(head_, chat, {0}, logprobs_);
  CompletionStream completions(head_, completion, {{0}}, logprobs_);
  for (const std::function<void()>& push : std::vector<std::function<void()>>{
           [&] { chats.push(failed); }, [&] { completions.push(0, failed); }}) {
    try {
      push();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice);
      EXPECT_STREQ(error.what(), "the card has left");
    }
  }
}

}  // namespace
}  // namespace bl::openai
