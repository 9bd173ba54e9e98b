#include "api/chat_messages.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/json.h"

namespace bl::openai {
namespace {

OrderedJson read(const char* text) { return OrderedJson::parse(text); }

std::string error_of(const char* text) {
  try {
    template_messages(read(text));
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(ChatMessages, TextsStayAsTheyAre) {
  const OrderedJson messages = read(R"([{"role":"system","content":"Be brief."},
      {"role":"user","content":"Hi","name":"Ann"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}, {"role":"assistant"}])");
  EXPECT_EQ(template_messages(messages), messages);
}

TEST(ChatMessages, ToolCallsAreThereOrNot) {
  EXPECT_EQ(template_messages(read(R"([{"role":"assistant","content":"a","tool_calls":null},
                                       {"role":"assistant","content":"b","tool_calls":[]},
                                       {"role":"assistant","tool_calls":[{"id":"1"}]}])")),
            read(R"([{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},
                     {"role":"assistant","tool_calls":[{"id":"1"}],"content":null}])"));
}

TEST(ChatMessages, PartsBecomeOneText) {
  const OrderedJson messages = template_messages(read(
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b c"}]},
          {"role":"user","content":[]}])"));
  EXPECT_EQ(messages[0]["content"], "a\nb c");
  EXPECT_EQ(messages[0]["role"], "user");
  EXPECT_EQ(messages[1]["content"], "");
}

TEST(ChatMessages, SaysWhatIsWrongWhere) {
  EXPECT_EQ(error_of("[]"), "messages should be a list of at least one message");
  EXPECT_EQ(error_of(R"("hi")"), "messages should be a list of at least one message");
  EXPECT_EQ(error_of("[3]"), "messages[0]: 3 is not a message with a role");
  EXPECT_EQ(error_of(R"([{"role":7}])"), R"(messages[0]: {"role":7} is not a message with a role)");
  EXPECT_EQ(error_of(R"([{"role":"user","content":"a"},{"role":"user","content":5}])"),
            "messages[1].content is 5, but should be a text or a list of parts");
  EXPECT_EQ(error_of(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"),
            R"(messages[0].content has a part of type "image_url"; only text can be read)");
  EXPECT_EQ(error_of(R"([{"role":"user","content":["a"]}])"),
            R"(messages[0].content: "a" is not a part with a type)");
  EXPECT_EQ(error_of(R"([{"role":"user","content":[{"type":"text","text":1}]}])"),
            "messages[0].content: a part of type text should hold its text as \"text\"");
  EXPECT_EQ(error_of(R"([{"role":"assistant","tool_calls":5}])"),
            "messages[0].tool_calls is 5, but should be a list of objects");
  EXPECT_NE(error_of(R"([{"role":"assistant","tool_calls":[{"function":"f"}]}])"), "none");
  EXPECT_EQ(error_of(R"([{"role":"assistant","tool_calls":null}])"), "none");
}

TEST(ChatMessages, ToolsAreObjectsWithNamedFunctions) {
  for (const char* right : {"null", "[]", R"([{"type":"function","function":{"name":"f"}}])",
                            R"([{"name":"f","parameters":{}}])"}) {
    EXPECT_EQ(template_tools(read(right)), read(right));
  }
  for (const char* wrong :
       {"5", R"("f")", "{}", "true", "[5]", "[[]]", "[null]", R"([{"function":5}])",
        R"([{"function":{}}])", R"([{"function":{"name":5}}])"}) {
    EXPECT_THROW(template_tools(read(wrong)), Error) << wrong;
  }
}

}  // namespace
}  // namespace bl::openai
