#include "api/answer_blocks.h"

#include <gtest/gtest.h>

#include "api/begun_object.h"
#include "base/json.h"

namespace bl::openai {
namespace {

using Kind = AnswerEvent::Kind;
using Step = BlockStep::Kind;

// "open content 0; text content 0 Hi; …"
std::string told(const std::vector<BlockStep>& steps) {
  std::string all;
  for (const BlockStep& step : steps) {
    all += step.kind == Step::kOpen ? "open " : step.kind == Step::kText ? "text " : "close ";
    all += step.block == BlockKind::kContent     ? "content "
           : step.block == BlockKind::kReasoning ? "reasoning "
                                                 : "call ";
    all += std::to_string(step.index) + " [" + step.text + "]";
    if (!step.id.empty()) all += " " + step.id + "=" + step.name;
    if (!step.complete) all += " incomplete";
    all += "; ";
  }
  return all;
}

TEST(AnswerBlocks, BlocksFollowOneAnother) {
  AnswerBlocks blocks;
  EXPECT_EQ(told(blocks.push({{.kind = Kind::kReasoning, .text = "Hm"}})),
            "open reasoning 0 []; text reasoning 0 [Hm]; ");
  EXPECT_EQ(told(blocks.push({{.kind = Kind::kContent, .text = "\n\n"},
                              {.kind = Kind::kContent, .text = "Yes"},
                              {.kind = Kind::kContent, .text = "."}})),
            "close reasoning 0 [Hm]; open content 1 []; text content 1 [\n\nYes]; "
            "text content 1 [.]; ");
  EXPECT_EQ(told(blocks.push({{.kind = Kind::kCallBegin, .name = "f", .id = "a"},
                              {.kind = Kind::kArguments, .text = "{"},
                              {.kind = Kind::kArguments, .text = "}"},
                              {.kind = Kind::kCallEnd, .complete = true},
                              {.kind = Kind::kContent, .text = " \n"},
                              {.kind = Kind::kCallBegin, .call = 1, .name = "g", .id = "b"},
                              {.kind = Kind::kArguments, .call = 1, .text = "{\"x"}})),
            "close content 1 [\n\nYes.]; open call 2 [] a=f; text call 2 [{]; text call 2 [}]; "
            "close call 2 [{}] a=f; open call 3 [] b=g; text call 3 [{\"x]; ");
  EXPECT_FALSE(blocks.has_complete_calls());
  EXPECT_EQ(told(blocks.finish()), "close call 3 [{\"x] b=g incomplete; ");
  EXPECT_FALSE(blocks.has_complete_calls());
}

TEST(AnswerBlocks, AnAnswerHasABlock) {
  AnswerBlocks blank;
  EXPECT_EQ(told(blank.push({{.kind = Kind::kContent, .text = " "}})), "");
  EXPECT_EQ(told(blank.finish()), "open content 0 []; close content 0 []; ");
  AnswerBlocks call;
  call.push({{.kind = Kind::kCallBegin, .name = "f", .id = "a"},
             {.kind = Kind::kCallEnd, .complete = true}});
  EXPECT_EQ(told(call.finish()), "");
  EXPECT_TRUE(call.has_complete_calls());
}

TEST(BegunObject, KeepsWhatIsWhole) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"a": 1, "b": [1, 2]})", R"({"a":1,"b":[1,2]})"},
      {R"({"a": 1, "b": [1, 2)", R"({"a":1,"b":[1]})"},
      {R"({"a": "x", "b": "y)", R"({"a":"x"})"},
      {R"({"a": "x\"},", "b": "y")", R"({"a":"x\"},","b":"y"})"},
      {R"({"a": "x\)", R"({})"},
      {R"({"a": {"b": "c"}, "d)", R"({"a":{"b":"c"}})"},
      {R"({"a": tr)", R"({})"},
      {R"({"a": true, )", R"({"a":true})"},
      {R"({"a": 1} and more)", R"({"a":1})"},
      {R"({"a" 1})", R"({})"},
      {"", "{}"},
      {"[1]", "{}"},
      {"no JSON", "{}"},
  };
  for (const auto& [text, object] : cases) {
    EXPECT_EQ(begun_object(text).dump(), object) << text;
  }
  EXPECT_EQ(begun_object(R"({"a":)" + std::string(100000, '[')).dump(), "{}");
}

}  // namespace
}  // namespace bl::openai
