// A streamed answer says what the whole answer says, however the engine cuts it into events.

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "../engine/tiny_model.h"
#include "api/answer_formats.h"
#include "api/answers.h"
#include "api/chat_stream.h"
#include "api/completion_stream.h"
#include "base/json.h"
#include "chunk_reader.h"
#include "engine/engine.h"

namespace bl::openai {
namespace {

using test::ChunkReader;

class Streams : public testing::Test {
 protected:
  static std::unique_ptr<ModelSession> load() {
    SessionOptions options;
    options.model = test::make_tiny_model("api-streams");
    options.backend = "ref";
    options.sequences = 4;
    return ModelSession::load(options);
  }
  static OrderedJson body(const std::string& members) { return OrderedJson::parse(members); }
  SamplingParams sampling() const {
    SamplingParams sampling = engine_.session().defaults().sampling;
    sampling.seed = 11;
    return sampling;
  }
  const AnswerHead head_{"answer-1", 1700000000, "tiny"};

  // The answer to a body, whole and as chunks of which each has at most `unread` tokens.
  void expect_chat_alike(const std::string& members, std::int64_t unread) {
    const auto request = ChatRequest::read(body(members), {}, sampling());
    AnswerFormats formats(engine_.session().defaults().end_tokens);
    const ChatTurn turn = request.turn(engine_.session().text(), formats);
    Request wanted = turn.request;
    std::vector<ChatChoice> choices;
    std::vector<ChoiceReader> readers;
    for (Answer& answer : engine_.submit(wanted).wait()) {
      choices.push_back(read_choice(std::move(answer), turn.reading));
      readers.emplace_back(turn.reading);
    }
    const Json whole = chat_completion(head_, request, {wanted.prompt, choices}, logprobs_);
    ChatStream stream(head_, request, wanted.prompt, logprobs_);
    ChunkReader reader(ChunkReader::Kind::kChat, request.include_usage);
    wanted.unread_tokens = unread;
    RequestHandle handle = engine_.submit(wanted);
    while (const std::optional<Event> event = handle.next()) {
      ChoiceReader& of_choice = readers[static_cast<std::size_t>(event->choice)];
      const std::vector<AnswerEvent> news = of_choice.push(*event);
      for (const Json& chunk : stream.push(*event, news, of_choice)) reader.add(chunk);
    }
    expect_alike(reader, stream.usage_chunk(), whole);
  }
  void expect_completion_alike(const std::string& members, std::int64_t unread) {
    const auto request = CompletionRequest::read(body(members), {}, sampling());
    std::vector<Request> wanted = request.engine_requests(engine_.tokenizer());
    std::vector<std::vector<Answer>> answers;
    std::vector<AnsweredPrompt> answered;
    std::vector<std::vector<std::int32_t>> prompts;
    for (const Request& one : wanted) answers.push_back(engine_.submit(one).wait());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      answered.push_back({wanted[i].prompt, answers[i]});
      prompts.push_back(wanted[i].prompt);
    }
    const Json whole = text_completion(head_, request, answered, logprobs_);
    CompletionStream stream(head_, request, prompts, logprobs_);
    ChunkReader reader(ChunkReader::Kind::kCompletion, request.include_usage);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      wanted[i].unread_tokens = unread;
      RequestHandle handle = engine_.submit(wanted[i]);
      while (const std::optional<Event> event = handle.next()) {
        if (const std::optional<Json> chunk = stream.push(i, *event)) reader.add(*chunk);
      }
    }
    expect_alike(reader, stream.usage_chunk(), whole);
  }
  void expect_alike(ChunkReader& reader, const std::optional<Json>& last, const Json& whole) {
    if (last) reader.add(*last);
    reader.finish();
    EXPECT_EQ(reader.choices(), whole.at("choices"));
    if (!last) return;
    // The second time the cache has more of the prompt.
    Json usage = reader.usage();
    usage["prompt_tokens_details"] = whole.at("usage").at("prompt_tokens_details");
    EXPECT_EQ(usage, whole.at("usage"));
  }

  Engine engine_{load()};
  const Logprobs logprobs_{engine_.tokenizer()};
};

TEST_F(Streams, OfChatsSayWhatTheWholeAnswerSays) {
  const std::string begin = R"({"messages":[{"role":"user","content":"thread"}],"stream":true,)"
                            R"("stream_options":{"include_usage":true},"max_tokens":40)";
  for (const std::int64_t unread : {1, 3, 1000}) {
    expect_chat_alike(begin + "}", unread);
    expect_chat_alike(begin + R"(,"n":3,"temperature":1.5})", unread);
    expect_chat_alike(begin + R"(,"logprobs":true,"top_logprobs":2,"stop":["e","12"]})", unread);
    expect_chat_alike(begin + R"(,"n":2,"logprobs":true,"skip_special_tokens":false})", unread);
  }
}

TEST_F(Streams, OfCompletionsSayWhatTheWholeAnswerSays) {
  const std::string begin = R"({"stream":true,"stream_options":{"include_usage":true},)"
                            R"("max_tokens":40,"prompt":)";
  for (const std::int64_t unread : {1, 3, 1000}) {
    expect_completion_alike(begin + R"("thread"})", unread);
    expect_completion_alike(begin + R"(["a","thread"],"n":2,"logprobs":2,"temperature":1.5})",
                            unread);
    expect_completion_alike(begin + R"([256,195],"logprobs":1,"stop":["e","~"]})", unread);
    expect_completion_alike(begin + R"("a thread","logprobs":1,"token_healing":true})", unread);
    expect_completion_alike(begin + R"("a","logprobs":1,"n":2,"best_of":3})", unread);
    expect_completion_alike(begin + R"("a thread","echo":true})", unread);
    expect_completion_alike(begin + R"(["a","thread"],"n":2,"logprobs":2,"echo":true})", unread);
    expect_completion_alike(begin + R"([256,195],"logprobs":0,"echo":true})", unread);
  }
}

}  // namespace
}  // namespace bl::openai
