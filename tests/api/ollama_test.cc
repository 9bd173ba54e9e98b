// Ollama's routes: bodies to bodies of OpenAI's form, readings of answers to lines, cards of
// models.

#include <gtest/gtest.h>

#include "api/ollama/answer_lines.h"
#include "api/ollama/chat_body.h"
#include "api/ollama/model_card.h"
#include "api/ollama/rfc3339.h"
#include "api/request_error.h"

namespace bl::ollama {
namespace {

using Kind = AnswerEvent::Kind;

OrderedJson parsed(const std::string& members) { return OrderedJson::parse("{" + members + "}"); }

TEST(OllamaRequest, OptionsHaveTheirNames) {
  const OrderedJson chat = chat_body(parsed(R"("model":"m","messages":[{"role":"user",
      "content":"Hi","images":[]}],"tools":[],"keep_alive":300.0,"options":{"temperature":0,
      "num_predict":24,"num_ctx":4096,"num_gpu":1,"seed":3,"stop":["\n"],"top_k":5,
      "repeat_penalty":1.1,"repeat_last_n":32,"n":4})"));
  EXPECT_EQ(chat, OrderedJson::parse(R"({"temperature":0,"seed":3,"stop":["\n"],"top_k":5,
      "repeat_penalty":1.1,"repeat_last_n":32,"penalize_prompt":true,"max_tokens":24,
      "model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]})"))
      << chat.dump();
  EXPECT_EQ(chat_body(parsed(R"("model":"m","stream":false)"))["stream"], false);
  const auto with_options = [](const std::string& options) {
    return chat_body(parsed(R"("model":"m","options":)" + options));
  };
  EXPECT_EQ(with_options(R"({"num_predict":-2})")["max_tokens"], -1);
  EXPECT_EQ(with_options(R"({"presence_penalty":1})")["penalty_range"], 64);
  EXPECT_FALSE(
      with_options(R"({"presence_penalty":1,"repeat_last_n":0})").contains("penalty_range"));
}

TEST(OllamaRequest, FormatAndThink) {
  const auto with = [](const std::string& members) {
    return chat_body(parsed(R"("model":"m",)" + members));
  };
  EXPECT_EQ(with(R"("format":"json")")["response_format"]["type"], "json_object");
  EXPECT_EQ(with(R"("format":{"type":"object"})")["response_format"]["json_schema"]["schema"],
            OrderedJson::parse(R"({"type":"object"})"));
  EXPECT_FALSE(with(R"("format":"")").contains("response_format"));
  EXPECT_FALSE(with(R"("format":null)").contains("response_format"));
  EXPECT_EQ(with(R"("think":false)")["reasoning"], OrderedJson::parse(R"({"enabled":false})"));
  EXPECT_EQ(with(R"("think":"low")")["reasoning"],
            OrderedJson::parse(R"({"enabled":true,"effort":"low"})"));
}

TEST(OllamaRequest, ResultsFindTheirCalls) {
  const OrderedJson chat = chat_body(parsed(R"("model":"m","messages":[
      {"role":"assistant","thinking":"Hm","tool_calls":[
        {"function":{"name":"f","arguments":{"a":1}}},{"function":{"name":"g"}},
        {"id":"own","function":{"name":"g","arguments":{}}}]},
      {"role":"tool","content":"two","tool_name":"g"},
      {"role":"tool","content":"three","tool_name":"g"},
      {"role":"tool","content":"one"}])"));
  EXPECT_EQ(chat["messages"], OrderedJson::parse(R"([
      {"role":"assistant","content":null,"reasoning_content":"Hm","tool_calls":[
        {"id":"call_1","type":"function","function":{"name":"f","arguments":{"a":1}}},
        {"id":"call_2","type":"function","function":{"name":"g","arguments":{}}},
        {"id":"own","type":"function","function":{"name":"g","arguments":{}}}]},
      {"role":"tool","content":"two","tool_call_id":"call_2","name":"g"},
      {"role":"tool","content":"three","tool_call_id":"own","name":"g"},
      {"role":"tool","content":"one","tool_call_id":"call_1"}])"))
      << chat["messages"].dump();
}

TEST(OllamaRequest, NullsInSchemasAreLeftOut) {
  const OrderedJson chat = chat_body(parsed(R"("model":"m","tools":[{"type":"function","function":{
      "name":"f","parameters":{"type":"object","items":null,"properties":{
      "a":{"type":"string","items":null,"enum":["x",null],"default":null}}}}},
      {"function":{"name":"g","parameters":null}}])"));
  EXPECT_EQ(chat["tools"], OrderedJson::parse(R"([{"type":"function","function":{
      "name":"f","parameters":{"type":"object","properties":{
      "a":{"type":"string","enum":["x",null],"default":null}}}}},{"function":{"name":"g"}}])"));
}

TEST(OllamaRequest, GeneratedTextsAreChatsOrRaw) {
  const OrderedJson chat = generate_chat_body(
      parsed(R"("model":"m","prompt":"Hi","system":"Be terse.","suffix":"","images":[])"));
  EXPECT_EQ(chat["messages"], OrderedJson::parse(R"([{"role":"system","content":"Be terse."},
                                                     {"role":"user","content":"Hi"}])"));
  const OrderedJson raw =
      raw_body(parsed(R"("model":"m","prompt":"Hi","raw":true,"think":true,"stream":false)"));
  EXPECT_EQ(raw,
            OrderedJson::parse(R"({"model":"m","stream":false,"prompt":"Hi","max_tokens":-1})"));
}

TEST(OllamaRequest, EmptyOnesLoadTheModel) {
  EXPECT_TRUE(asks_for_loading(parsed(R"("messages":[])"), true));
  EXPECT_TRUE(asks_for_loading(parsed(""), true));
  EXPECT_FALSE(asks_for_loading(parsed(R"("messages":[{}])"), true));
  EXPECT_TRUE(asks_for_loading(parsed(R"("prompt":"","suffix":"","images":[])"), false));
  EXPECT_TRUE(asks_for_loading(parsed(""), false));
  EXPECT_FALSE(asks_for_loading(parsed(R"("prompt":"a")"), false));
}

TEST(OllamaRequest, FaultsNameTheirField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("messages":[])", "model"},
      {R"("model":7)", "model"},
      {R"("model":"m","messages":"Hi")", "messages"},
      {R"("model":"m","messages":[7])", "messages[0]"},
      {R"("model":"m","messages":[{}])", "messages[0].role"},
      {R"("model":"m","messages":[{"role":"user","content":[]}])", "messages[0].content"},
      {R"("model":"m","messages":[{"role":"user","images":["x"]}])", "messages[0].images"},
      {R"("model":"m","messages":[{"role":"assistant","tool_calls":[{}]}])",
       "messages[0].tool_calls[0].function"},
      {R"("model":"m","options":7)", "options"},
      {R"("model":"m","options":{"num_predict":"x"})", "options.num_predict"},
      {R"("model":"m","format":"xml")", "format"},
      {R"("model":"m","think":7)", "think"},
      {R"("model":"m","stream":"no")", "stream"},
      {R"("model":"m","tools":{})", "tools"},
  };
  for (const auto& [members, param] : cases) {
    try {
      chat_body(parsed(members));
      ADD_FAILURE() << members;
    } catch (const openai::RequestError& error) {
      EXPECT_EQ(error.param(), param) << members;
    }
  }
}

TEST(OllamaTime, IsRfc3339) {
  EXPECT_EQ(rfc3339(0), "1970-01-01T00:00:00.000000000Z");
  EXPECT_EQ(rfc3339(1772282096'000000005), "2026-02-28T12:34:56.000000005Z");
}

struct Told {
  std::vector<Json> lines;
  Json whole;
};
Told tell(Route route, const std::vector<std::vector<AnswerEvent>>& news, FinishReason reason,
          std::vector<std::int32_t> prompt = {}) {
  AnswerLines answer({route, "m", 1000, [] { return std::int64_t{0}; }}, std::move(prompt));
  std::vector<Json> lines;
  for (const auto& some : news) {
    for (Json& line : answer.push({.ids = {7}}, some)) lines.push_back(std::move(line));
  }
  const Usage usage{.prompt_tokens = 10,
                    .generated_tokens = 3,
                    .queue_seconds = 1,
                    .prefill_seconds = 2,
                    .decode_seconds = 4};
  for (Json& line : answer.push({.ids = {8}, .finish = reason, .usage = usage}, {})) {
    lines.push_back(std::move(line));
  }
  WholeAnswer whole;
  for (const Json& line : lines) whole.add(line);
  return {std::move(lines), whole.answer()};
}

TEST(OllamaLines, OfAChat) {
  const Told told =
      tell(Route::kChat,
           {{{.kind = Kind::kReasoning, .text = "Hm"}},
            {{.kind = Kind::kReasoning, .text = "."}},
            {},
            {{.kind = Kind::kContent, .text = "We"}},
            {{.kind = Kind::kContent, .text = "ll"},
             {.kind = Kind::kCallBegin, .name = "f", .id = "a"},
             {.kind = Kind::kArguments, .text = "{\"x\":"}},
            {{.kind = Kind::kArguments, .text = "1}"}, {.kind = Kind::kCallEnd, .complete = true}},
            {{.kind = Kind::kCallBegin, .call = 1, .name = "g", .id = "b"},
             {.kind = Kind::kArguments, .call = 1, .text = "{}"},
             {.kind = Kind::kCallEnd, .call = 1, .complete = true}}},
           FinishReason::kEndToken);
  ASSERT_EQ(told.lines.size(), 7u);
  EXPECT_EQ(told.lines[0], Json::parse(R"({"model":"m","created_at":
      "1970-01-01T00:00:00.000000000Z","done":false,
      "message":{"role":"assistant","content":"","thinking":"Hm"}})"));
  EXPECT_EQ(told.lines[4]["message"]["tool_calls"], Json::parse(R"([
      {"id":"a","function":{"index":0,"name":"f","arguments":{"x":1}}}])"));
  EXPECT_EQ(told.lines[6], Json::parse(R"({"model":"m","created_at":
      "1970-01-01T00:00:00.000000000Z","done":true,"done_reason":"stop",
      "message":{"role":"assistant","content":""},"total_duration":7000001000,
      "load_duration":1000,"prompt_eval_count":10,"prompt_eval_duration":2000000000,
      "eval_count":3,"eval_duration":4000000000})"))
      << told.lines[6].dump();
  Json whole = told.lines[6];
  whole["message"] = Json::parse(R"({"role":"assistant","content":"Well","thinking":"Hm.",
      "tool_calls":[{"id":"a","function":{"index":0,"name":"f","arguments":{"x":1}}},
                    {"id":"b","function":{"index":1,"name":"g","arguments":{}}}]})");
  EXPECT_EQ(told.whole, whole) << told.whole.dump();
}

TEST(OllamaLines, OfAGeneratedText) {
  const Told told =
      tell(Route::kGenerate,
           {{{.kind = Kind::kContent, .text = "a"}}, {{.kind = Kind::kContent, .text = "b"}}},
           FinishReason::kMaxTokens, {1, 2});
  EXPECT_EQ(told.whole["response"], "ab");
  EXPECT_EQ(told.whole["done_reason"], "length");
  EXPECT_EQ(told.whole["context"], Json::parse("[1,2,7,7,8]"));
  EXPECT_FALSE(told.lines[0].contains("context"));
  EXPECT_FALSE(tell(Route::kGenerate, {}, FinishReason::kEndToken).whole.contains("context"));
}

TEST(OllamaCards, SayWhatAModelCan) {
  ModelCard card;
  card.name = "m";
  card.architecture = "arch";
  card.model_context = 512;
  EXPECT_EQ(shown(card)["capabilities"], Json::parse(R"(["completion"])"));
  EXPECT_EQ(shown(card)["model_info"]["arch.context_length"], 512);
  card.calls_tools = card.thinks = true;
  EXPECT_EQ(shown(card)["capabilities"], Json::parse(R"(["completion","tools","thinking"])"));
  EXPECT_EQ(tags_entry(card)["details"]["families"], Json::parse(R"(["arch"])"));
  EXPECT_EQ(running_entry(card, 0)["expires_at"], "1970-01-01T00:00:00.000000000Z");
}

}  // namespace
}  // namespace bl::ollama
