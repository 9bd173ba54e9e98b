// Wrong bodies of requests, and the field that the error names.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/request_error.h"

namespace bl::openai {
namespace {

template <class R>
std::string param_of(const OrderedJson& body) {
  try {
    R::read(body, {}, SamplingParams::plain());
  } catch (const RequestError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.param();
  } catch (const Error& error) {
    return fmt::format("no param: {}", error.what());
  }
  return "no error";
}

using Cases = std::vector<std::pair<const char*, const char*>>;  // members of a body, the param

OrderedJson chat_with(const std::string& members) {
  return OrderedJson::parse(R"({"messages":[{"role":"user","content":"Hi"}])" +
                            (members.empty() ? "" : "," + members) + "}");
}

TEST(WrongBodies, ParametersAreNamed) {
  const Cases cases{
      {R"("temperature":"hot")", "temperature"},
      {R"("top_p":7)", "top_p"},
      {R"("logprobs":true,"top_logprobs":3,"top_p":7)", "top_p"},
      {R"("top_logprobs":3)", "top_logprobs"},
      {R"("top_logprobs":300,"logprobs":true)", "top_logprobs"},
      {R"("min_tokens":9,"max_tokens":5)", "min_tokens"},
      {R"("n":0)", "n"},
      {R"("n":3e8)", "n"},
      {R"("n":0,"top_p":"x")", "top_p"},
      {R"("rep_pen":0)", "rep_pen"},
      {R"("rep_pen":1.1,"repetition_penalty":1.2)", "repetition_penalty"},
      {R"("stop":[{}])", "stop"},
      {R"("stop":5)", "stop"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("seed":"x")", "seed"},
  };
  for (const auto& [members, param] : cases) {
    EXPECT_EQ(param_of<ChatRequest>(chat_with(members)), param) << members;
  }
}

TEST(WrongBodies, FormsAreNamed) {
  const Cases cases{
      {R"("guided_regex":5)", "guided_regex"},
      {R"("guided_regex":"a$b")", "guided_regex"},
      {R"("guided_json":"no JSON")", "guided_json"},
      {R"("response_format":{"type":"x"})", "response_format"},
      {R"("response_format":{"type":"json_schema"})", "response_format"},
      {R"("json_schema":{},"guided_regex":"a")", "guided_regex"},
      {R"("guided_choice_ignore_case":true)", "guided_choice_ignore_case"},
      {R"("guided_choice":"a")", "guided_choice"},
      {R"("guided_regex":"a","trigger_token":-1)", "trigger_token"},
      {R"("constraints":[{}])", "constraints"},
  };
  for (const auto& [members, param] : cases) {
    EXPECT_EQ(param_of<ChatRequest>(chat_with(members)), param) << members;
  }
}

TEST(WrongBodies, OtherFieldsAreNamedByTheirPath) {
  const Cases cases{
      {R"("stream":"yes")", "stream"},
      {R"("stream":true,"stream_options":5)", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("stream":true,"prompt_logprobs":0)", "prompt_logprobs"},
      {R"("skip_special_tokens":1)", "skip_special_tokens"},
      {R"("adapters":5)", "adapters"},
      {R"("adapters":[{"name":"a"},{"name":5}])", "adapters[1]"},
      {R"("adapters":[{"name":"a","weight":"much"}])", "adapters[0]"},
      {R"("tools":5)", "tools"},
      {R"("tools":[{},{"function":5}])", "tools[1]"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":"always")", "tool_choice"},
      {R"("tool_choice":{"type":"function"})", "tool_choice"},
      {R"("tool_choice":{"type":"allowed_tools"})", "tool_choice"},
      {R"("tools":[{"type":"function","function":{"name":"g"}}],"tool_choice":{"type":"function","function":{"name":"f"}})",
       "tool_choice"},
      {R"("reasoning_budget":"much")", "reasoning_budget"},
      {R"("reasoning_format":5)", "reasoning_format"},
      {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
      {R"("chat_template_kwargs":3)", "chat_template_kwargs"},
      {R"("template_vars":[])", "template_vars"},
      {R"("reasoning":"high")", "reasoning"},
      {R"("reasoning":{"enabled":"yes"})", "reasoning.enabled"},
      {R"("add_generation_prompt":"x")", "add_generation_prompt"},
      {R"("echo":true)", "echo"},
      {R"("suffix":"x")", "suffix"},
      {R"("functions":[{"name":"f"}])", "functions"},
      {R"("bad_words":["x"])", "bad_words"},
      {R"("truncate_prompt_tokens":5)", "truncate_prompt_tokens"},
  };
  for (const auto& [members, param] : cases) {
    EXPECT_EQ(param_of<ChatRequest>(chat_with(members)), param) << members;
  }
}

// Clients of text-generation-webui and TabbyAPI send them with every request.
TEST(WrongBodies, FormsThatAreOffAreNotWrong) {
  for (const char* members :
       {R"("grammar_string":"")", R"("json_schema":"","regex_pattern":"","grammar_string":"")",
        R"("guided_choice":[],"guided_json":null)", R"("guided_choice_ignore_case":false)",
        R"("constraints":[])", R"("response_format":"")", R"("structural_tag":false)",
        R"("echo":0,"suffix":"","truncate_prompt_tokens":0)"}) {
    EXPECT_EQ(param_of<ChatRequest>(chat_with(members)), "no error") << members;
  }
  EXPECT_EQ(param_of<ChatRequest>(chat_with(R"("grammar_string":"","guided_regex":5)")),
            "guided_regex");
}

TEST(WrongBodies, MessagesAreNamedByTheirPath) {
  const Cases cases{
      {R"({})", "messages"},
      {R"({"messages":null})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":[{"role":"user"},5]})", "messages[1].role"},
      {R"({"messages":[{"role":5}]})", "messages[0].role"},
      {R"({"messages":[{"role":"narrator","content":"a"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"},{"role":"user","content":5}]})", "messages[1].content"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},5]}]})",
       "messages[0].content[1]"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":5}]}]})",
       "messages[0].content[0].text"},
      {R"({"messages":[{"role":"assistant","tool_calls":5}]})", "messages[0].tool_calls"},
      {R"({"messages":[{"role":"assistant","tool_calls":[5]}]})", "messages[0].tool_calls[0]"},
  };
  for (const auto& [body, param] : cases) {
    EXPECT_EQ(param_of<ChatRequest>(OrderedJson::parse(body)), param) << body;
  }
}

TEST(WrongBodies, ListsAreBounded) {
  const auto listed = [](const std::string& item, std::size_t count) {
    std::string list = item;
    for (std::size_t i = 1; i < count; ++i) list += "," + item;
    return "[" + list + "]";
  };
  const std::string part = R"({"type":"text","text":"a"})";
  const std::string message = R"({"role":"user","content":"a"})";
  const std::string tool = R"({"type":"function","function":{"name":"f"}})";
  const auto chat = [](const std::string& body) {
    return param_of<ChatRequest>(OrderedJson::parse(body));
  };
  EXPECT_EQ(chat(R"({"messages":)" + listed(message, 16385) + "}"), "messages");
  EXPECT_EQ(chat(R"({"messages":[{"role":"user","content":)" + listed(part, 4097) + "}]}"),
            "messages[0].content");
  EXPECT_EQ(chat(R"({"messages":[)" + message + R"(],"tools":)" + listed(tool, 1025) + "}"),
            "tools");
  EXPECT_EQ(chat(R"({"messages":[)" + message + R"(],"tools":)" + listed(tool, 1024) + "}"),
            "no error");
  EXPECT_EQ(param_of<CompletionRequest>(
                OrderedJson::parse(R"({"prompt":)" + listed("\"a\"", 1025) + "}")),
            "prompt");
}

TEST(WrongBodies, PromptsAreNamedByTheirPath) {
  const Cases cases{
      {R"({})", "prompt"},
      {R"({"prompt":null})", "prompt"},
      {R"({"prompt":[]})", "prompt"},
      {R"({"prompt":5})", "prompt"},
      {R"({"prompt":["a",5]})", "prompt[1]"},
      {R"({"prompt":["a",[]]})", "prompt[1]"},
      {R"({"prompt":[1,-2]})", "prompt[1]"},
      {R"({"prompt":[1,"a"]})", "prompt[1]"},
      {R"({"prompt":[[1],[2,4294967296]]})", "prompt[1][1]"},
      {R"({"prompt":"a","top_p":7})", "top_p"},
      {R"({"prompt":"a","min_tokens":20})", "min_tokens"},  // max_tokens is 16
  };
  for (const auto& [body, param] : cases) {
    EXPECT_EQ(param_of<CompletionRequest>(OrderedJson::parse(body)), param) << body;
  }
  OrderedJson many;
  many["prompt"] = std::vector<std::string>(1025, "a");
  EXPECT_EQ(param_of<CompletionRequest>(many), "prompt");
}

// Clients send null for what they leave open, and fields that this program does not know.
TEST(WrongBodies, NullAndUnknownFieldsAreNotWrong) {
  std::string members;
  for (const char* key : {"model",
                          "stream",
                          "stream_options",
                          "temperature",
                          "top_p",
                          "n",
                          "stop",
                          "max_tokens",
                          "max_completion_tokens",
                          "logprobs",
                          "top_logprobs",
                          "logit_bias",
                          "seed",
                          "tools",
                          "tool_choice",
                          "response_format",
                          "functions",
                          "function_call",
                          "user",
                          "metadata",
                          "echo",
                          "suffix",
                          "adapters",
                          "skip_special_tokens",
                          "chat_template_kwargs",
                          "add_generation_prompt",
                          "guided_json",
                          "constraints",
                          "nobody_knows_this"}) {
    members += fmt::format("{}\"{}\":null", members.empty() ? "" : ",", key);
  }
  EXPECT_EQ(param_of<ChatRequest>(chat_with(members)), "no error");
  EXPECT_EQ(param_of<ChatRequest>(chat_with(
                R"("store":true,"metadata":{"a":"b"},"service_tier":"auto","functions":[],
                   "bad_words":[],"use_beam_search":false,"nobody_knows_this":[1])")),
            "no error");
}

}  // namespace
}  // namespace bl::openai
