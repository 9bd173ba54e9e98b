// Bodies of requests become structs, and these become requests for the engine.

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "../engine/tiny_model.h"
#include "api/answer_formats.h"
#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/request_error.h"
#include "base/json.h"
#include "byte_tokenizer.h"
#include "engine/model_text.h"

namespace bl::openai {
namespace {

OrderedJson body_of(const std::string& members) { return OrderedJson::parse("{" + members + "}"); }

const std::string kMessages = R"("messages":[{"role":"user","content":"ab"}])";

ChatRequest chat(const std::string& members, const RequestDefaults& otherwise = {}) {
  return ChatRequest::read(body_of(kMessages + members), otherwise, SamplingParams::plain());
}

CompletionRequest completion(const std::string& members, const RequestDefaults& otherwise = {}) {
  SamplingParams sampling = SamplingParams::plain();
  sampling.seed = 77;
  return CompletionRequest::read(body_of(members), otherwise, sampling);
}

TEST(RequestFields, AreReadUnderTheNamesOfAnyClient) {
  const ChatRequest request = chat(
      R"(,"model":"m","stream":true,"stream_options":{"include_usage":true},"n":3,"seed":5,
         "max_completion_tokens":24,"temperature":0.5,"rep_pen":1.5,"top_k":-1,"stop":["a",7],
         "logprobs":true,"top_logprobs":2,"logit_bias":{"3":-100},"skip_special_tokens":false,
         "response_format":{"type":"json_object"})");
  EXPECT_EQ(request.model, "m");
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_FALSE(request.skip_special);
  EXPECT_EQ(request.constraint.kind, ConstraintSpec::Kind::kJsonObject);
  SamplingParams expected = SamplingParams::plain();
  expected.n = 3;
  expected.seed = 5;
  expected.max_tokens = 24;
  expected.temperature = 0.5;
  expected.repetition_penalty = 1.5;
  expected.stop_strings = {"a"};
  expected.stop_tokens = {7};
  expected.logprobs = true;
  expected.top_logprobs = 2;
  expected.logit_bias = {{3, -100}};
  EXPECT_EQ(request.sampling, expected);
}

TEST(RequestFields, UsageIsAPartOfStreamsOnly) {
  EXPECT_FALSE(chat(R"(,"stream_options":{"include_usage":true})").include_usage);
  EXPECT_FALSE(chat(R"(,"stream":true)").include_usage);
  EXPECT_FALSE(chat(R"(,"stream":true,"stream_options":{})").include_usage);
}

TEST(RequestFields, DefaultsFillWhatIsLeftOpen) {
  RequestDefaults otherwise;
  otherwise.constraint = {.kind = ConstraintSpec::Kind::kRegex, .text = "a+"};
  otherwise.preset = SamplingPreset::parse(
      Json{{"temperature", 0.25}, {"min_p", {{"override", 0.5}, {"force", true}}}}, "p",
      "preset p");
  otherwise.adapters = {{"french", 0.5}, {"terse", 2}};
  const CompletionRequest open = completion(R"("prompt":"a")", otherwise);
  EXPECT_EQ(open.constraint, otherwise.constraint);
  EXPECT_EQ(open.sampling.temperature, 0.25);
  EXPECT_EQ(open.sampling.min_p, 0.5);
  EXPECT_EQ(open.sampling.seed, 77u);
  EXPECT_EQ(open.sampling.max_tokens, 16);
  ASSERT_EQ(open.adapters.size(), 2u);
  const CompletionRequest own = completion(
      R"("prompt":"a","temperature":2,"min_p":0.1,"seed":1,"max_tokens":30,"guided_regex":"b",
         "adapters":[{"name":"terse"},{"name":"other"},{"name":"french","weight":3}])",
      otherwise);
  EXPECT_EQ(own.constraint.text, "b");
  EXPECT_EQ(own.sampling.temperature, 2);
  EXPECT_EQ(own.sampling.min_p, 0.5);  // forced
  EXPECT_EQ(own.sampling.seed, 1u);
  EXPECT_EQ(own.sampling.max_tokens, 30);
  ASSERT_EQ(own.adapters.size(), 3u);
  EXPECT_EQ(own.adapters[0].weight, 2);
  EXPECT_EQ(own.adapters[1].weight, 1);
  EXPECT_EQ(own.adapters[2].weight, 3);
  EXPECT_TRUE(completion(R"("prompt":"a","adapters":[])", otherwise).adapters.empty());
}

// As in OpenAI's API; vLLM and SGLang do the same.
TEST(RequestFields, PenaltiesOfOpenAiCountTheAnswerAlone) {
  EXPECT_FALSE(chat(R"(,"frequency_penalty":1)").sampling.penalize_prompt);
  EXPECT_FALSE(completion(R"("prompt":"a","presence_penalty":1)").sampling.penalize_prompt);
  EXPECT_TRUE(chat(R"(,"penalize_prompt":true)").sampling.penalize_prompt);
}

TEST(RequestFields, UnknownOnesAreNamed) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(chat(R"(,"model":"m","user":"u","metadata":{"a":"b"},"store":true,"rep_pen":1.1,
                     "guided_regex":"a","echo":false,"parallel_tool_calls":true,"mirostat":0,
                     "reasoning_effort":"low","not_given":null)")
                .unknown,
            Names{});
  EXPECT_EQ(chat(R"(,"temprature":0.5,"zap":0,"prompt":"x","ever":[],"top_p":1)").unknown,
            (Names{"ever", "prompt", "temprature", "zap"}));
  EXPECT_EQ(completion(R"("prompt":"a","messages":[],"no repeat":3)").unknown,
            (Names{"messages", "no repeat"}));
}

TEST(ChatRequest, FieldsThatAreVariablesOfTheTemplate) {
  const auto variables = [](const std::string& members) {
    OrderedJson all = chat("," + members).template_variables;
    all.erase("add_generation_prompt");
    return Json(all);
  };
  EXPECT_EQ(variables(R"("enable_thinking":false,"verbosity":"low","reasoning_effort":"high")"),
            (Json{{"enable_thinking", false}, {"verbosity", "low"}, {"reasoning_effort", "high"}}));
  const Json off{{"enable_thinking", false}, {"thinking", false}, {"reasoning", false}};
  Json none = off;
  none["reasoning_effort"] = "none";
  EXPECT_EQ(variables(R"("reasoning_effort":"none")"), none);
  EXPECT_EQ(variables(R"("reasoning":{"enabled":false})"), off);
  EXPECT_EQ(variables(R"("reasoning":{"effort":"low","max_tokens":5})"),
            (Json{{"reasoning_effort", "low"}}));
  // Later ones win.
  EXPECT_EQ(variables(R"("reasoning":{"enabled":false},"enable_thinking":true,
                         "template_vars":{"thinking":1,"a":2},"chat_template_kwargs":{"a":3})"),
            (Json{{"enable_thinking", true}, {"thinking", 1}, {"reasoning", false}, {"a", 3}}));
}

TEST(ChatRequest, KeepsWhatTheTemplateHears) {
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const ChatRequest request = chat(tools + R"(,"chat_template_kwargs":{"enable_thinking":false})");
  EXPECT_EQ(request.messages.size(), 1u);
  EXPECT_EQ(request.tools.size(), 1u);
  EXPECT_EQ(request.template_variables["enable_thinking"], false);
  EXPECT_EQ(request.template_variables["add_generation_prompt"], true);
  EXPECT_EQ(chat(tools + R"(,"tool_choice":"auto")").tools.size(), 1u);
  EXPECT_TRUE(chat(tools + R"(,"tool_choice":"none")").tools.is_null());
  EXPECT_TRUE(chat("").tools.is_null());
  EXPECT_TRUE(chat(R"(,"tools":[])").tools.is_null());
}

TEST(CompletionRequest, TakesAPromptInEachOfItsForms) {
  using Ids = std::vector<std::int32_t>;
  const auto prompts = [](const std::string& prompt) {
    return completion("\"prompt\":" + prompt).prompts;
  };
  EXPECT_EQ(prompts(R"("ab")"), (std::vector<CompletionRequest::Prompt>{"ab"}));
  EXPECT_EQ(prompts(R"("")"), (std::vector<CompletionRequest::Prompt>{""}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (std::vector<CompletionRequest::Prompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1,2]"), (std::vector<CompletionRequest::Prompt>{Ids{1, 2}}));
  EXPECT_EQ(prompts(R"([[1,2],"b",[3]])"),
            (std::vector<CompletionRequest::Prompt>{Ids{1, 2}, "b", Ids{3}}));
}

TEST(CompletionRequest, KnowsWhatAsksForThePromptAlone) {
  EXPECT_TRUE(completion(R"("prompt":"a","max_tokens":0)").prompt_only);
  EXPECT_FALSE(completion(R"("prompt":"a","max_tokens":-1)").prompt_only);
  EXPECT_EQ(completion(R"("prompt":"a","max_tokens":-1)").sampling.max_tokens, 0);
  EXPECT_FALSE(completion(R"("prompt":"a")").prompt_only);
}

// Log-probabilities of the prompt come with those of the answer, and of the same number.
TEST(CompletionRequest, EchoWantsThePromptsLogprobs) {
  const CompletionRequest echo = completion(R"("prompt":"a","echo":true,"logprobs":3)");
  EXPECT_TRUE(echo.echo);
  EXPECT_EQ(echo.sampling.prompt_logprobs, 3);
  EXPECT_FALSE(echo.tells_prompt_logprobs);
  EXPECT_EQ(completion(R"("prompt":"a","echo":true)").sampling.prompt_logprobs, -1);
}

TEST(CompletionRequest, ASuffixNeedsTokensForIt) {
  const auto request = completion(R"("prompt":"a","suffix":"b")");
  const auto without = test::make_byte_tokenizer({"<s>"});
  try {
    request.engine_requests(*without);
    ADD_FAILURE() << "no error";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.param(), "suffix");
  }
  const auto pairs =
      test::make_byte_tokenizer({"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"});
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(request.engine_requests(*pairs)[0].prompt, (Ids{256, 'a', 257, 'b', 258}));
  const auto turned = test::make_byte_tokenizer({"[SUFFIX]", "[PREFIX]"});
  EXPECT_EQ(request.engine_requests(*turned)[0].prompt, (Ids{256, 'b', 257, 'a'}));
}

class EngineRequests : public testing::Test {
 protected:
  const ModelText text_{Tokenizer::load(test::make_tiny_model("api-requests")), "tiny"};
};

TEST_F(EngineRequests, OfAChatStandBehindItsTemplate) {
  AnswerFormats formats({});
  const Request request =
      chat(R"(,"max_tokens":7,"skip_special_tokens":false)").turn(text_, formats).request;
  EXPECT_EQ(text_.tokenizer().decode(request.prompt, false), "<s><|user|>ab<|bot|>");
  EXPECT_FALSE(request.continues_prompt);
  EXPECT_FALSE(request.skip_special);
  EXPECT_EQ(request.sampling.max_tokens, 7);
  const Request closed = chat(R"(,"add_generation_prompt":false)").turn(text_, formats).request;
  EXPECT_EQ(text_.tokenizer().decode(closed.prompt, false), "<s><|user|>ab");
}

TEST_F(EngineRequests, OfACompletionAreOneForEachPrompt) {
  const auto requests =
      completion(R"("prompt":["ab",[65]],"n":2)").engine_requests(text_.tokenizer());
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].prompt, text_.tokenizer().encode("ab"));
  EXPECT_EQ(requests[1].prompt, (std::vector<std::int32_t>{65}));
  EXPECT_TRUE(requests[1].continues_prompt);
  EXPECT_EQ(requests[1].sampling.n, 2);
}

}  // namespace
}  // namespace bl::openai
