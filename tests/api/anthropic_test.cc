// Anthropic's messages: bodies to bodies of chats, readings of answers to events.

#include <gtest/gtest.h>

#include "api/anthropic/message_stream.h"
#include "api/anthropic/messages_request.h"
#include "api/request_error.h"

namespace bl::anthropic {
namespace {

using Kind = AnswerEvent::Kind;

OrderedJson chat_of(const std::string& members) {
  return chat_body(OrderedJson::parse("{" + members + "}"));
}

OrderedJson messages_of(const std::string& messages) {
  return chat_of(R"("messages":)" + messages).at("messages");
}

OrderedJson with_message(const std::string& members) {
  return chat_of(R"("messages":[{"role":"user","content":"Hi"}],)" + members);
}

TEST(AnthropicRequest, SystemTextsComeFirst) {
  EXPECT_EQ(with_message(R"("system":"Be terse.")")["messages"],
            OrderedJson::parse(R"([{"role":"system","content":"Be terse."},
                                   {"role":"user","content":"Hi"}])"));
  EXPECT_EQ(with_message(R"("system":[
                {"type":"text","text":"x-anthropic-billing-header: cc_version=2.1;"},
                {"type":"text","text":"One.","cache_control":{"type":"ephemeral"}},
                {"type":"text","text":"Two."}])")["messages"][0]["content"],
            "One.\nTwo.");
  EXPECT_EQ(
      with_message(R"("system":"x-anthropic-billing-header: a\nRest")")["messages"][0]["content"],
      "Rest");
  EXPECT_EQ(with_message(R"("system":"x-anthropic-billing-header: a")")["messages"].size(), 1u);
}

TEST(AnthropicRequest, SystemMessagesStayWhereTheyAre) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"Hi"},
                            {"role":"system","content":[{"type":"text","text":"Now."}]},
                            {"role":"system","content":"Then."}])"),
            OrderedJson::parse(R"([{"role":"user","content":"Hi"},
                                   {"role":"system","content":"Now."},
                                   {"role":"system","content":"Then."}])"));
}

TEST(AnthropicRequest, CallsAndResultsAreMessages) {
  const OrderedJson messages = messages_of(R"([
      {"role":"assistant","content":[
        {"type":"thinking","thinking":"Hm.","signature":"x"},
        {"type":"redacted_thinking","data":"secret"},
        {"type":"tool_use","id":"a","name":"weather","input":{"city":"Rome"}},
        {"type":"tool_use","id":"b","name":"time","input":{}}]},
      {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"sunny"},
                                                           {"type":"text","text":"warm"}]},
        {"type":"tool_result","tool_use_id":"b","is_error":true,"content":"no clock"},
        {"type":"tool_result","tool_use_id":"c"},
        {"type":"text","text":"And?"}]},
      {"role":"assistant","content":[{"type":"text","text":"Fine."}]}])");
  EXPECT_EQ(messages, OrderedJson::parse(R"([
      {"role":"assistant","content":null,"reasoning_content":"Hm.","tool_calls":[
        {"id":"a","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}},
        {"id":"b","type":"function","function":{"name":"time","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"a","content":"sunny\nwarm","name":"weather"},
      {"role":"tool","tool_call_id":"b","content":"Error: no clock","name":"time"},
      {"role":"tool","tool_call_id":"c","content":""},
      {"role":"user","content":"And?"},
      {"role":"assistant","content":"Fine."}])"))
      << messages.dump();
}

TEST(AnthropicRequest, AnAnswerGoesOnWithALastMessageOfItsOwn) {
  const auto goes_on = [](const std::string& last) {
    return chat_of(R"("messages":[{"role":"user","content":"Hi"},)" + last + "]")
        .contains("continue_final_message");
  };
  EXPECT_TRUE(goes_on(R"({"role":"assistant","content":"He"})"));
  EXPECT_FALSE(goes_on(R"({"role":"assistant","content":""})"));
  EXPECT_FALSE(goes_on(R"({"role":"user","content":"He"})"));
  EXPECT_FALSE(goes_on(R"({"role":"assistant","content":[{"type":"text","text":"He"},
      {"type":"tool_use","id":"a","name":"f","input":{}}]})"));
}

TEST(AnthropicRequest, ToolsWithSchemasAreOffered) {
  const OrderedJson chat = with_message(R"("tools":[
      {"name":"f","description":"F.","input_schema":{"type":"object","properties":{}}},
      {"name":"g","type":"custom","defer_loading":true,"input_schema":{"type":"object"}},
      {"name":"web_search","type":"web_search_20250305","max_uses":3}],
      "tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true})");
  EXPECT_EQ(chat["tools"], OrderedJson::parse(R"([
      {"type":"function","function":{"name":"f","description":"F.",
                                     "parameters":{"type":"object","properties":{}}}},
      {"type":"function","function":{"name":"g","parameters":{"type":"object"}}}])"));
  EXPECT_EQ(chat["tool_choice"],
            OrderedJson::parse(R"({"type":"function","function":{"name":"f"}})"));
  EXPECT_EQ(chat["parallel_tool_calls"], false);
  const char* tools = R"("tools":[{"name":"f","input_schema":{}}],"tool_choice":)";
  EXPECT_EQ(with_message(tools + std::string(R"({"type":"any"})"))["tool_choice"], "required");
  EXPECT_EQ(with_message(tools + std::string(R"({"type":"none"})"))["tool_choice"], "none");
  EXPECT_EQ(with_message(tools + std::string(R"({"type":"auto"})"))["tool_choice"], "auto");
  EXPECT_FALSE(with_message(R"("tools":[])").contains("tools"));
}

TEST(AnthropicRequest, OtherFieldsKeepTheirMeaning) {
  const OrderedJson chat = with_message(R"("model":"m","max_tokens":5,"stop_sequences":["x"],
      "temperature":0.5,"top_k":3,"stream":true,"n":4,"metadata":{"user_id":"{}"},
      "context_management":{"edits":[]},"min_p":0.1,
      "thinking":{"type":"enabled","budget_tokens":16000},"output_config":{"effort":"max",
      "format":{"type":"json_schema","schema":{"type":"object"}}})");
  EXPECT_EQ(chat["model"], "m");
  EXPECT_EQ(chat["max_tokens"], 5);
  EXPECT_EQ(chat["stop_sequences"], OrderedJson::parse(R"(["x"])"));
  EXPECT_EQ(chat["min_p"], 0.1);
  EXPECT_EQ(chat["stream"], true);
  EXPECT_EQ(chat["reasoning"], OrderedJson::parse(R"({"enabled":true,"effort":"high"})"));
  EXPECT_EQ(chat["reasoning_budget_tokens"], 16000);
  EXPECT_EQ(chat["response_format"]["json_schema"]["schema"]["type"], "object");
  for (const char* key : {"n", "metadata", "context_management", "thinking", "output_config"}) {
    EXPECT_FALSE(chat.contains(key)) << key;
  }
  EXPECT_EQ(with_message(R"("thinking":{"type":"disabled"})")["reasoning"]["enabled"], false);
}

TEST(AnthropicRequest, FaultsNameTheirField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("max_tokens":3)", "messages"},
      {R"("messages":"Hi")", "messages"},
      {R"("messages":[])", "messages"},
      {R"("messages":["Hi"])", "messages[0]"},
      {R"("messages":[{"content":"Hi"}])", "messages[0].role"},
      {R"("messages":[{"role":"tool","content":"Hi"}])", "messages[0].role"},
      {R"("messages":[{"role":"user"}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":7}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":[7]}])", "messages[0].content[0]"},
      {R"("messages":[{"role":"user","content":[{"text":"a"}]}])", "messages[0].content[0].type"},
      {R"("messages":[{"role":"user","content":[{"type":"image"}]}])",
       "messages[0].content[0].type"},
      {R"("messages":[{"role":"user","content":[{"type":"text"}]}])",
       "messages[0].content[0].text"},
      {R"("messages":[{"role":"user","content":[{"type":"tool_result"}]}])",
       "messages[0].content[0].tool_use_id"},
      {R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a"}]}])",
       "messages[0].content[0].name"},
      {R"("messages":[{"role":"user","content":"Hi"}],"system":7)", "system"},
      {R"("messages":[{"role":"user","content":"Hi"}],"tools":{})", "tools"},
      {R"("messages":[{"role":"user","content":"Hi"}],"tools":[{}])", "tools[0].name"},
      {R"("messages":[{"role":"user","content":"Hi"}],"tools":[{"name":"f"}],"tool_choice":"any")",
       "tool_choice"},
      {R"("messages":[{"role":"user","content":"Hi"}],"stream":"yes")", "stream"},
      {R"("messages":[{"role":"user","content":"Hi"}],"stop_sequences":"x")", "stop_sequences"},
      {R"("messages":[{"role":"user","content":"Hi"}],"thinking":true)", "thinking"},
  };
  for (const auto& [members, param] : cases) {
    try {
      chat_of(members);
      ADD_FAILURE() << members;
    } catch (const openai::RequestError& error) {
      EXPECT_EQ(error.param(), param) << members;
    }
  }
}

// The answer of a model that reasons, speaks and calls, and the event with its end.
struct Told {
  std::vector<Json> events;
  Json whole;
};
Told tell(const std::vector<std::vector<AnswerEvent>>& news, Event last) {
  MessageStream stream({"msg_1", "m", 10});
  std::vector<Json> events = stream.push({.started = Admission{.cached_tokens = 4}}, {});
  for (const auto& some : news) {
    for (Json& event : stream.push({.ids = {1}}, some)) events.push_back(std::move(event));
  }
  last.usage = {.prompt_tokens = 10, .cached_tokens = 4, .generated_tokens = 7};
  for (Json& event : stream.push(last, {})) events.push_back(std::move(event));
  WholeMessage whole;
  for (const Json& event : events) whole.add(event);
  return {std::move(events), whole.message()};
}

std::string types_of(const std::vector<Json>& events) {
  std::string types;
  for (const Json& event : events) {
    types += event.at("type").get<std::string>();
    if (event.contains("index")) types += " " + event["index"].dump();
    if (event.contains("delta") && event["delta"].contains("type")) {
      types += " " + event["delta"]["type"].get<std::string>();
    }
    types += "\n";
  }
  return types;
}

TEST(AnthropicStream, BlocksHaveTheRightOrderAndTypes) {
  const Told told =
      tell({{{.kind = Kind::kReasoning, .text = "Hm"}},
            {{.kind = Kind::kContent, .text = "Well"}},
            {{.kind = Kind::kContent, .text = ", "}},
            {{.kind = Kind::kCallBegin, .name = "f", .id = "call_1"},
             {.kind = Kind::kArguments, .text = "{\"a\":"}},
            {{.kind = Kind::kArguments, .text = "1}"}, {.kind = Kind::kCallEnd, .complete = true}}},
           {.finish = FinishReason::kEndToken});
  EXPECT_EQ(types_of(told.events),
            "message_start\n"
            "content_block_start 0\n"
            "content_block_delta 0 thinking_delta\n"
            "content_block_delta 0 signature_delta\n"
            "content_block_stop 0\n"
            "content_block_start 1\n"
            "content_block_delta 1 text_delta\n"
            "content_block_delta 1 text_delta\n"
            "content_block_stop 1\n"
            "content_block_start 2\n"
            "content_block_delta 2 input_json_delta\n"
            "content_block_delta 2 input_json_delta\n"
            "content_block_stop 2\n"
            "message_delta\n"
            "message_stop\n");
  EXPECT_EQ(told.events[0]["message"]["usage"], Json::parse(R"({"input_tokens":6,
      "cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":0})"));
  EXPECT_EQ(told.events[9]["content_block"],
            Json::parse(R"({"type":"tool_use","id":"call_1","name":"f","input":{}})"));
  Json whole = told.whole;
  EXPECT_FALSE(whole["content"][0]["signature"].get<std::string>().empty());
  whole["content"][0].erase("signature");
  EXPECT_EQ(whole, Json::parse(R"({"id":"msg_1","type":"message","role":"assistant","model":"m",
      "content":[{"type":"thinking","thinking":"Hm"},{"type":"text","text":"Well, "},
                 {"type":"tool_use","id":"call_1","name":"f","input":{"a":1}}],
      "stop_reason":"tool_use","stop_sequence":null,
      "usage":{"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,
               "output_tokens":7}})"))
      << whole.dump();
}

TEST(AnthropicStream, SaysWhyTheAnswerEnded) {
  const std::vector<std::vector<AnswerEvent>> text{{{.kind = Kind::kContent, .text = "a"}}};
  EXPECT_EQ(tell(text, {.finish = FinishReason::kEndToken}).whole["stop_reason"], "end_turn");
  EXPECT_EQ(tell(text, {.finish = FinishReason::kMaxTokens}).whole["stop_reason"], "max_tokens");
  EXPECT_EQ(tell(text, {.finish = FinishReason::kContext}).whole["stop_reason"], "max_tokens");
  const Json stopped = tell(text, {.finish = FinishReason::kStopString, .stop_string = "x"}).whole;
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "x");
}

TEST(AnthropicStream, ACallThatIsCutKeepsWhatItHas) {
  const Json whole = tell({{{.kind = Kind::kCallBegin, .name = "f", .id = "a"},
                            {.kind = Kind::kArguments, .text = R"({"a":"x","b":"y)"},
                            {.kind = Kind::kCallEnd}}},
                          {.finish = FinishReason::kMaxTokens})
                         .whole;
  EXPECT_EQ(whole["stop_reason"], "max_tokens");
  EXPECT_EQ(whole["content"][0]["input"], Json::parse(R"({"a":"x"})"));
}

}  // namespace
}  // namespace bl::anthropic
