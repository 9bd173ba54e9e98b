// OpenAI's responses: bodies to bodies of chats, readings of answers to events.

#include <gtest/gtest.h>

#include "api/request_error.h"
#include "api/responses/response_request.h"
#include "api/responses/response_stream.h"

namespace bl::responses {
namespace {

using Kind = AnswerEvent::Kind;

OrderedJson chat_of(const std::string& members) {
  return chat_body(OrderedJson::parse("{" + members + "}"));
}

TEST(ResponseRequest, InputIsATextOrItems) {
  EXPECT_EQ(chat_of(R"("input":"Hi","instructions":"Be terse.")")["messages"],
            OrderedJson::parse(R"([{"role":"system","content":"Be terse."},
                                   {"role":"user","content":"Hi"}])"));
  EXPECT_EQ(chat_of(R"("input":[])")["messages"],
            OrderedJson::parse(R"([{"role":"user","content":""}])"));
  EXPECT_EQ(chat_of(R"("input":[
              {"role":"developer","content":"Be kind."},
              {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},
                                                         {"type":"input_text","text":"b"}]},
              {"id":"msg_1","type":"message","role":"assistant","status":"completed",
               "content":[{"type":"output_text","text":"c","annotations":[],"logprobs":[]}]},
              {"role":"assistant","content":"d"}])")["messages"],
            OrderedJson::parse(R"([{"role":"developer","content":"Be kind."},
                                   {"role":"user","content":"a\nb"},
                                   {"role":"assistant","content":"c"},
                                   {"role":"assistant","content":"d"}])"));
}

TEST(ResponseRequest, ItemsOfATurnAreOneMessage) {
  const OrderedJson messages = chat_of(R"("input":[
      {"role":"user","content":"Hi"},
      {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"short"}],
       "content":[{"type":"reasoning_text","text":"Hm"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Wait."}]},
      {"type":"function_call","call_id":"a","name":"f","arguments":"{}"},
      {"type":"function_call","id":"fc_2","call_id":"b","name":"g","arguments":"{\"x\":1}",
       "status":"completed"},
      {"type":"web_search_call","id":"ws_1","status":"completed"},
      {"type":"function_call_output","call_id":"a","output":"one"},
      {"type":"function_call_output","call_id":"b","output":[{"type":"input_text","text":"two"}]},
      {"type":"reasoning","summary":[]},
      {"type":"reasoning","summary":[{"type":"summary_text","text":"short"}]},
      {"type":"function_call","call_id":"c","name":"f","arguments":""}])")["messages"];
  EXPECT_EQ(messages, OrderedJson::parse(R"([
      {"role":"user","content":"Hi"},
      {"role":"assistant","content":"Wait.","reasoning_content":"Hm","tool_calls":[
        {"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},
        {"id":"b","type":"function","function":{"name":"g","arguments":"{\"x\":1}"}}]},
      {"role":"tool","tool_call_id":"a","content":"one"},
      {"role":"tool","tool_call_id":"b","content":"two"},
      {"role":"assistant","content":null,"reasoning_content":"short","tool_calls":[
        {"id":"c","type":"function","function":{"name":"f","arguments":""}}]}])"))
      << messages.dump();
}

TEST(ResponseRequest, HostedToolsAreSkipped) {
  const char* tools = R"("input":"Hi","tools":[{"type":"web_search","filters":null},
      {"type":"namespace","name":"n","tools":[]},
      {"type":"function","name":"f","description":"F.","strict":true,
       "parameters":{"type":"object"}},{"type":"function","name":"g"}],"tool_choice":)";
  const OrderedJson chat =
      chat_of(tools + std::string(R"("required","parallel_tool_calls":false)"));
  EXPECT_EQ(chat["tools"], OrderedJson::parse(R"([
      {"type":"function","function":{"name":"f","description":"F.","parameters":{"type":"object"},
                                     "strict":true}},
      {"type":"function","function":{"name":"g"}}])"));
  EXPECT_EQ(chat["tool_choice"], "required");
  EXPECT_EQ(chat["parallel_tool_calls"], false);
  EXPECT_EQ(chat_of(tools + std::string(R"({"type":"function","name":"f"})"))["tool_choice"],
            OrderedJson::parse(R"({"type":"function","function":{"name":"f"}})"));
  EXPECT_EQ(chat_of(tools + std::string(R"({"type":"web_search"})"))["tool_choice"], "auto");
  const OrderedJson some = chat_of(tools + std::string(R"({"type":"allowed_tools","mode":"required",
                              "tools":[{"type":"function","name":"g"}]})"));
  EXPECT_EQ(some["tool_choice"], "required");
  EXPECT_EQ(some["tools"].size(), 1u);
  EXPECT_FALSE(chat_of(R"("input":"Hi","tools":[{"type":"web_search"}],"tool_choice":"required")")
                   .contains("tool_choice"));
}

TEST(ResponseRequest, TheFormIsOneOfTexts) {
  const std::string form = R"("input":"Hi","text":{"verbosity":"low","format":{
      "type":"json_schema","name":"W","strict":true,"schema":{"type":"object"}}})";
  const OrderedJson chat = chat_of(form);
  EXPECT_EQ(chat["response_format"], OrderedJson::parse(R"({"type":"json_schema",
      "json_schema":{"name":"W","schema":{"type":"object"},"strict":true}})"));
  EXPECT_EQ(chat["verbosity"], "low");
  EXPECT_FALSE(
      chat_of(form + R"(,"tools":[{"type":"function","name":"f"}],"tool_choice":"required")")
          .contains("response_format"));
  EXPECT_FALSE(
      chat_of(R"("input":"","text":{"format":{"type":"text"}})").contains("response_format"));
}

TEST(ResponseRequest, OtherFieldsKeepTheirMeaning) {
  const OrderedJson chat =
      chat_of(R"("model":"m","input":"Hi","max_output_tokens":5,"temperature":0,"store":true,
                 "include":[],"reasoning":{"effort":"high","summary":"auto"},"stream":true,
                 "previous_response_id":null,"truncation":"auto")");
  EXPECT_EQ(chat["max_tokens"], 5);
  EXPECT_EQ(chat["temperature"], 0);
  EXPECT_EQ(chat["reasoning_effort"], "high");
  EXPECT_EQ(chat["stream"], true);
  for (const char* key : {"store", "include", "reasoning", "truncation", "input"}) {
    EXPECT_FALSE(chat.contains(key)) << key;
  }
}

TEST(ResponseRequest, FaultsNameTheirField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("model":"m")", "input"},
      {R"("input":7)", "input"},
      {R"("input":[7])", "input[0]"},
      {R"("input":[{"content":"Hi"}])", "input[0].role"},
      {R"("input":[{"role":"tool","content":"Hi"}])", "input[0].role"},
      {R"("input":[{"role":"user"}])", "input[0].content"},
      {R"("input":[{"role":"user","content":[{"type":"input_image"}]}])",
       "input[0].content[0].type"},
      {R"("input":[{"type":"function_call","name":"f","arguments":"{}"}])", "input[0].call_id"},
      {R"("input":[{"type":"function_call","call_id":"a","name":"f"}])", "input[0].arguments"},
      {R"("input":[{"type":"item_reference","id":"msg_1"}])", "input[0]"},
      {R"("input":"Hi","previous_response_id":"resp_1")", "previous_response_id"},
      {R"("input":"Hi","background":true)", "background"},
      {R"("input":"Hi","max_output_tokens":"5")", "max_output_tokens"},
      {R"("input":"Hi","tools":[{"name":"f"}])", "tools[0].type"},
      {R"("input":"Hi","tools":[{"type":"function"}])", "tools[0].name"},
      {R"("input":"Hi","tools":[{"type":"function","name":"f"}],"tool_choice":7)", "tool_choice"},
      {R"("input":"Hi","text":{"format":{"type":"xml"}})", "text.format.type"},
      {R"("input":"Hi","text":{"format":{"type":"json_schema"}})", "text.format.schema"},
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

ResponseStream stream_of(const std::string& body) {
  auto count = std::make_shared<int>(0);
  return ResponseStream(
      {"resp_1", "m", 7, echoed_fields(OrderedJson::parse(body)), [count](std::string_view prefix) {
         return std::string(prefix) + std::to_string(++*count);
       }});
}

std::vector<Json> tell(ResponseStream& stream, const std::vector<std::vector<AnswerEvent>>& news,
                       FinishReason reason) {
  std::vector<Json> events;
  for (const auto& some : news) {
    for (Json& event : stream.push({.ids = {1, 2}}, some, 0)) events.push_back(std::move(event));
  }
  const Usage usage{.prompt_tokens = 10, .cached_tokens = 4, .generated_tokens = 7};
  for (Json& event : stream.push({.finish = reason, .usage = usage}, {}, 2)) {
    events.push_back(std::move(event));
  }
  return events;
}

std::string types_of(const std::vector<Json>& events) {
  std::string types;
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].at("sequence_number"), i);
    types += events[i].at("type").get<std::string>();
    if (events[i].contains("output_index")) types += " " + events[i]["output_index"].dump();
    types += "\n";
  }
  return types;
}

TEST(ResponseStreamTest, EventsHaveTheRightOrder) {
  ResponseStream stream = stream_of(R"({"store":true,"tools":[{"type":"web_search"},
      {"type":"function","name":"f"}],"max_output_tokens":5})");
  const std::vector<Json> events = tell(stream,
                                        {{{.kind = Kind::kReasoning, .text = "Hm"}},
                                         {{.kind = Kind::kContent, .text = "Well"}},
                                         {{.kind = Kind::kCallBegin, .name = "f", .id = "call_1"},
                                          {.kind = Kind::kArguments, .text = "{}"},
                                          {.kind = Kind::kCallEnd, .complete = true}}},
                                        FinishReason::kEndToken);
  EXPECT_EQ(types_of(events),
            "response.created\n"
            "response.in_progress\n"
            "response.output_item.added 0\n"
            "response.content_part.added 0\n"
            "response.reasoning_text.delta 0\n"
            "response.reasoning_text.done 0\n"
            "response.content_part.done 0\n"
            "response.output_item.done 0\n"
            "response.output_item.added 1\n"
            "response.content_part.added 1\n"
            "response.output_text.delta 1\n"
            "response.output_text.done 1\n"
            "response.content_part.done 1\n"
            "response.output_item.done 1\n"
            "response.output_item.added 2\n"
            "response.function_call_arguments.delta 2\n"
            "response.function_call_arguments.done 2\n"
            "response.output_item.done 2\n"
            "response.completed\n");
  const Json& whole = events.back()["response"];
  EXPECT_EQ(whole["status"], "completed");
  EXPECT_EQ(whole["store"], false);
  EXPECT_EQ(whole["tools"].size(), 1u);
  EXPECT_EQ(whole["max_output_tokens"], 5);
  EXPECT_EQ(whole["output"], Json::parse(R"([
      {"id":"rs_1","type":"reasoning","status":"completed","summary":[],
       "content":[{"type":"reasoning_text","text":"Hm"}]},
      {"id":"msg_2","type":"message","status":"completed","role":"assistant",
       "content":[{"type":"output_text","text":"Well","annotations":[],"logprobs":[]}]},
      {"id":"fc_3","type":"function_call","status":"completed","call_id":"call_1","name":"f",
       "arguments":"{}"}])"))
      << whole["output"].dump();
  EXPECT_EQ(whole["usage"], Json::parse(R"({"input_tokens":10,
      "input_tokens_details":{"cached_tokens":4},"output_tokens":7,
      "output_tokens_details":{"reasoning_tokens":2},"total_tokens":17})"));
  EXPECT_EQ(events[13]["item"], whole["output"][1]);
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
}

TEST(ResponseStreamTest, AtTheLimitOfTokensItIsIncomplete) {
  ResponseStream stream = stream_of("{}");
  const std::vector<Json> events = tell(stream,
                                        {{{.kind = Kind::kContent, .text = "a"}},
                                         {{.kind = Kind::kCallBegin, .name = "f", .id = "x"},
                                          {.kind = Kind::kArguments, .text = "{\"a"}}},
                                        FinishReason::kMaxTokens);
  EXPECT_EQ(events.back()["type"], "response.incomplete");
  const Json& whole = events.back()["response"];
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["output"][0]["status"], "completed");
  EXPECT_EQ(whole["output"][1]["status"], "incomplete");
  EXPECT_EQ(whole["output"][1]["arguments"], "{\"a");
}

TEST(ResponseStreamTest, AFailureIsTheLastEvent) {
  ResponseStream stream = stream_of("{}");
  stream.push({}, {}, 0);
  const Json event = stream.failed({{"code", "server_error"}, {"message", "no"}});
  EXPECT_EQ(event["type"], "response.failed");
  EXPECT_EQ(event["sequence_number"], 2);
  EXPECT_EQ(event["response"]["status"], "failed");
  EXPECT_EQ(event["response"]["error"]["code"], "server_error");
}

}  // namespace
}  // namespace bl::responses
