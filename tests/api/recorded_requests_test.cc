// Requests that real clients send (requests/ of the shared material), and chunks as those clients
// read them.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "../engine/word_tokenizer.h"
#include "api/chat_stream.h"
#include "api/completion_stream.h"
#include "api/request_error.h"
#include "base/json.h"
#include "chunk_reader.h"
#include "read_stream.h"
#include "support/data.h"

namespace bl::openai {
namespace {

namespace fs = std::filesystem;
using test::ChunkReader;

class RecordedRequests : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test::shared_dir() / "requests";
    if (test::shared_dir().empty() || !fs::exists(folder_)) {
      GTEST_SKIP() << "no shared/requests (BITLOOM_DATA)";
    }
  }
  // Calls `see` with the body of each request to this path. Returns their number.
  int for_each(const std::string& path, const std::function<void(const OrderedJson&)>& see) {
    int count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.path().extension() != ".json") continue;
      SCOPED_TRACE(entry.path().string());
      const Json file = read_json_file(entry.path());
      for (const Json& request : file.at("requests")) {
        if (request.at("path") != path) continue;
        ++count;
        see(parse_ordered_json(json_text(request.at("body")), "body"));
      }
    }
    return count;
  }
  // Events for any request. Their text is "Hi there", of which a part comes later than its tokens.
  static std::vector<Event> events() {
    return {{.prompt_done = 3},
            {.text = "Hi", .ids = {0}, .logprobs = {{{0, -1}, {}}}},
            {.ids = {1}, .logprobs = {{{1, -1}, {}}}},
            {.text = " there",
             .finish = FinishReason::kMaxTokens,
             .usage = {.prompt_tokens = 3, .generated_tokens = 2}}};
  }
  fs::path folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = test::make_word_tokenizer({"Hi", "Ġthere"});
  Logprobs logprobs_{*tokenizer_};
};

void expect_fields(const RequestFields& fields, const OrderedJson& body) {
  EXPECT_EQ(fields.model, body.at("model"));
  EXPECT_EQ(fields.stream, body.value("stream", false));
  EXPECT_EQ(fields.include_usage, body.contains("stream_options"));
  EXPECT_EQ(fields.sampling.temperature, body.value("temperature", 1.0));
  EXPECT_EQ(fields.sampling.top_p, body.value("top_p", 1.0));
  EXPECT_EQ(static_cast<bool>(fields.constraint), body.contains("response_format"));
  for (const char* key : {"max_tokens", "max_completion_tokens"}) {
    EXPECT_TRUE(!body.contains(key) || body[key] == fields.sampling.max_tokens) << body;
  }
}

TEST_F(RecordedRequests, ChatsAreRead) {
  int forced = 0;
  const int all = for_each("/v1/chat/completions", [&](const OrderedJson& body) {
    const auto request = ChatRequest::read(body, {}, SamplingParams::plain());
    expect_fields(request, body);
    EXPECT_EQ(request.messages.size(), body.at("messages").size());
    EXPECT_EQ(request.tools.is_null(), !body.contains("tools"));
    forced += request.tool_choice.kind == ToolChoice::Kind::kRequired ? 1 : 0;
    for (const OrderedJson& message : request.messages) {
      EXPECT_FALSE(message.contains("content") && message["content"].is_array());
    }
  });
  EXPECT_GT(all, 50);
  EXPECT_GT(forced, 0);
}

TEST_F(RecordedRequests, CompletionsAreRead) {
  const int all = for_each("/v1/completions", [&](const OrderedJson& body) {
    const auto request = CompletionRequest::read(body, {}, SamplingParams::plain());
    expect_fields(request, body);
    const OrderedJson& prompt = body.at("prompt");
    EXPECT_EQ(request.prompts.size(), prompt.is_array() ? prompt.size() : 1);
  });
  EXPECT_GT(all, 3);
}

// The files say what their clients read: pieces of text, one finish_reason, and the usage in a last
// chunk without choices where it was asked for, and only there.
TEST_F(RecordedRequests, StreamsAreWhatTheirClientsRead) {
  int streams = 0;
  for_each("/v1/chat/completions", [&](const OrderedJson& body) {
    if (!body.value("stream", false)) return;
    ++streams;
    const auto request = ChatRequest::read(body, {}, SamplingParams::plain());
    test::ReadStream stream({"chatcmpl-1", 1700000000, request.model}, request, {0}, logprobs_);
    ChunkReader reader(ChunkReader::Kind::kChat, body.contains("stream_options"));
    for (const Event& event : events()) {
      for (const Json& chunk : stream.push(event)) reader.add(chunk);
    }
    if (const auto last = stream.usage_chunk()) reader.add(*last);
    reader.finish();
    const Json choice = reader.choices().at(0);
    EXPECT_EQ(choice.at("message").at("content"), "Hi there");
    EXPECT_EQ(choice.at("finish_reason"), "length");
    EXPECT_TRUE(reader.usage().is_null() || reader.usage().at("total_tokens") == 5);
  });
  for_each("/v1/completions", [&](const OrderedJson& body) {
    if (!body.value("stream", false)) return;
    ++streams;
    const auto request = CompletionRequest::read(body, {}, SamplingParams::plain());
    CompletionStream stream({"cmpl-1", 1700000000, request.model}, request, {{0}}, logprobs_);
    ChunkReader reader(ChunkReader::Kind::kCompletion, body.contains("stream_options"));
    for (const Event& event : events()) {
      if (const auto chunk = stream.push(0, event)) reader.add(*chunk);
    }
    if (const auto last = stream.usage_chunk()) reader.add(*last);
    reader.finish();
    EXPECT_EQ(reader.choices().at(0).at("text"), "Hi there");
  });
  EXPECT_GT(streams, 10);
}

}  // namespace
}  // namespace bl::openai
