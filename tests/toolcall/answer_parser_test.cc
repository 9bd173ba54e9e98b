#include "toolcall/answer_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "offered_tools.h"
#include "reading.h"
#include "support/data.h"

namespace bl {
namespace {

Json as_json(const ParsedAnswer& answer) {
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  Json calls = Json::array();
  for (const ParsedCall& call : answer.calls) {
    const Json arguments = call.complete ? parse_json(call.arguments, "arguments") : Json();
    calls.push_back({{"name", call.name}, {"arguments", arguments}});
  }
  return {
      {"content", text(answer.content)}, {"reasoning", text(answer.reasoning)}, {"calls", calls}};
}

// Each line of tests/data/toolcall/answers.jsonl: an answer in a format, and how it is read. Null
// arguments are those of a call that is not complete.
TEST(AnswerParser, ReadsTheListedAnswers) {
  const ToolSet tools(test::offered_tools());
  std::ifstream lines(test::data_dir() / "toolcall" / "answers.jsonl");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json test = parse_json(line, "answer");
    const AnswerFormat format = named_answer_format(test.at("format").get<std::string>());
    AnswerOptions options;
    options.start.in_reasoning = test.value("in_reasoning", false);
    options.start.prompt = test.value("prompt", std::string());
    const auto parser = [&] { return AnswerParser(format, tools, options); };
    const std::string text = test.at("text").get<std::string>();
    const std::vector<AnswerEvent> events = test::read_whole(parser(), text);
    const ParsedAnswer answer = test::parsed(events);
    Json wanted;
    for (const char* key : {"content", "reasoning", "calls"}) wanted[key] = test.at(key);
    EXPECT_EQ(as_json(answer), wanted) << test.at("format") << '\n' << text;
    EXPECT_EQ(test::read_bytes(parser(), text), events) << text;
    EXPECT_EQ(test::read_pieces(parser(), text, 1), events) << text;
  }
  EXPECT_GT(count, 60);
}

TEST(AnswerParser, PassesArgumentsOnAsTheyCome) {
  const ToolSet tools(test::offered_tools());
  const AnswerFormat format = named_answer_format("hermes");
  AnswerParser parser(format, tools, {});
  EXPECT_TRUE(parser.feed("<tool_call>\n{\"name\": \"paint_fence\"").empty());
  const std::vector<AnswerEvent> begun = parser.feed(", \"arguments\": {\"col");
  ASSERT_EQ(begun.size(), 2u);
  EXPECT_EQ(begun[0].kind, AnswerEvent::Kind::kCallBegin);
  EXPECT_EQ(begun[0].name, "paint_fence");
  EXPECT_EQ(begun[1].text, "{\"col");
  EXPECT_EQ(parser.feed("our\": \"se")[0].text, "our\": \"se");
}

TEST(AnswerParser, StreamsBareStringsButWaitsForOtherValues) {
  const ToolSet tools(test::offered_tools());
  const AnswerFormat format = named_answer_format("qwen-3-coder");
  AnswerParser parser(format, tools, {});
  parser.feed("<tool_call>\n<function=paint_fence>\n<parameter=colour>\n");
  EXPECT_EQ(parser.feed("sea")[0].text, "sea");
  EXPECT_TRUE(parser.feed("</par").empty());
  EXPECT_EQ(parser.feed("ts")[0].text, "</parts");
  EXPECT_EQ(parser.feed("</parameter>\n<parameter=coats>")[0].text, "\", \"coats\": ");
  EXPECT_TRUE(parser.feed("12").empty());
  EXPECT_EQ(parser.feed("</parameter>")[0].text, "12");
}

TEST(AnswerParser, LeavesReasoningInContentWhereThatIsAsked) {
  const ToolSet tools(test::offered_tools());
  const AnswerFormat format = named_answer_format("hermes");
  AnswerOptions options;
  options.separate_reasoning = false;
  const std::string text = "<think>\nHm. <tool_call>\n</think>\n\nYes.";
  const auto events = test::read_whole(AnswerParser(format, tools, options), text);
  EXPECT_EQ(test::parsed(events).content, text);
  EXPECT_TRUE(test::parsed(events).reasoning.empty());
  EXPECT_EQ(test::read_bytes(AnswerParser(format, tools, options), text), events);
}

TEST(AnswerParser, ReadsNoCallWhereNoneIsWanted) {
  const AnswerFormat format = named_answer_format("hermes");
  const std::string text =
      "<tool_call>\n{\"name\": \"count-boards\", \"arguments\": {}}\n</tool_call>";
  const ToolSet none;
  EXPECT_EQ(test::parsed(test::read_whole(AnswerParser(format, none, {}), text)).content, text);
  const ToolSet tools(test::offered_tools());
  AnswerOptions options;
  options.read_calls = false;
  EXPECT_EQ(test::parsed(test::read_whole(AnswerParser(format, tools, options), text)).content,
            text);
}

TEST(AnswerParser, ReplacesBytesThatAreNotUtf8) {
  const AnswerFormat format = named_answer_format("hermes");
  const ToolSet tools;
  const auto events = test::read_whole(AnswerParser(format, tools, {}), "a\xff b \xe2\x82");
  EXPECT_EQ(test::parsed(events).content, "a\xef\xbf\xbd b \xef\xbf\xbd");
}

// Much of what begins calls, in every format: a megabyte for one format of each form.
TEST(AnswerParser, TakesTimeInProportionToTheText) {
  const ToolSet tools(test::offered_tools());
  for (const FormatDocument& document : format_documents()) {
    const AnswerFormat format = named_answer_format(document.format.name);
    std::vector<std::string> units = {"<", "[", "<tool_call>\n{\"", "{\"a\":[\"",
                                      "{\"name\": \"x\", "};
    for (const Pattern& pattern : format.calls) {
      if (pattern.opening().empty()) continue;
      units.push_back(pattern.opening());
      units.push_back(pattern.opening() + "\n");
      units.push_back(pattern.opening() + "{\"name\": \"f\", \"x\": [\"");
      units.push_back(pattern.opening() + "paint_fence");
    }
    for (const ParameterSyntax& parameter : format.parameters) {
      units.push_back(format.calls.front().opening() + "paint_fence>" + parameter.open.opening() +
                      "boards>[\"" + parameter.close);
    }
    for (const std::string& unit : units) {
      constexpr std::string_view kLong[] = {"hermes", "mistral",    "qwen-3-coder",
                                            "lfm2",   "minimax-m3", "gemma-4"};
      const bool is_long = std::count(std::begin(kLong), std::end(kLong), format.name) > 0;
      std::string text;
      const std::size_t size = (is_long ? 1u << 20 : 1u << 15) / (BL_SANITIZED ? 4 : 1);
      while (text.size() < size) text += unit;
      const auto begin = std::chrono::steady_clock::now();
      AnswerParser parser(format, tools, {});
      parser.feed(text);
      parser.finish();
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      EXPECT_LT(seconds, BL_SANITIZED ? 60 : 20) << format.name << ": " << unit;
    }
  }
}

TEST(AnswerStart, FollowsTheEndOfThePrompt) {
  const AnswerFormat format = named_answer_format("hermes");
  const auto start = [&](std::string_view prompt, std::string_view tail) {
    return find_answer_start(format, prompt, tail);
  };
  EXPECT_TRUE(start("Hi<a>\n<think>\n", "<a>\n<think>\n").in_reasoning);
  EXPECT_TRUE(start("Hi<a>\n<think>\n", "").in_reasoning);
  EXPECT_FALSE(start("Hi<a><think>\n\n</think>\n\n", "<a><think>\n\n</think>\n\n").in_reasoning);
  EXPECT_FALSE(start("say <think>, please<a>", "<a>").in_reasoning);
  EXPECT_FALSE(start("say <think>, please<a>", "").in_reasoning);
  EXPECT_EQ(start("Hi<a>\n<think", "<a>\n<think").prompt, "<think");
  EXPECT_EQ(named_answer_format("functionary-3-2").prompt, ">>>");
}

TEST(AnswerFormat, RefusesDocumentsThatAreWrong) {
  EXPECT_THROW(named_answer_format("nothing"), Error);
  for (const char* text :
       {R"({"calls": ["<a>"]})", R"({"calls": ["<a>{parameters}"]})", R"({"calls": ["{braces}"]})",
        R"({"calls": ["{object}x"]})", R"({"call": []})", R"({"calls": [""]})", R"([])"}) {
    EXPECT_THROW(read_format_document(text, "test", {}), Error) << text;
  }
}

}  // namespace
}  // namespace bl
