#include "api/request_error.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace bl::openai {
namespace {

TEST(RequestError, KnowsItsField) {
  try {
    fail_at(ErrorCode::kInvalidArgument, "messages[2].content", "{} is {}", "content", 5);
  } catch (const Error& error) {
    const ErrorAnswer answer = error_answer(error);
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.body, (Json{{"error",
                                  {{"message", "content is 5"},
                                   {"type", "invalid_request_error"},
                                   {"param", "messages[2].content"},
                                   {"code", nullptr}}}}));
  }
}

TEST(RequestError, OtherErrorsHaveNone) {
  for (const ErrorCode code : {ErrorCode::kInvalidFile, ErrorCode::kUnsupported,
                               ErrorCode::kNotFound, ErrorCode::kLimit}) {
    const ErrorAnswer answer = error_answer(Error(code, "why"));
    EXPECT_EQ(answer.status, 400);
    EXPECT_TRUE(answer.body.at("error").at("param").is_null());
  }
  for (const ErrorCode code :
       {ErrorCode::kOutOfMemory, ErrorCode::kIo, ErrorCode::kCancelled, ErrorCode::kDevice}) {
    const ErrorAnswer answer = error_answer(Error(code, "why"));
    EXPECT_EQ(answer.status, 500);
    EXPECT_EQ(answer.body.at("error").at("type"), "server_error");
  }
}

// A reader of letters that fails for "b" alone, and for "c" and "d" together.
void read_letters(const Json& object) {
  if (object.contains("c") && object.contains("d")) fail(ErrorCode::kLimit, "c and d");
  if (object.contains("b")) fail(ErrorCode::kInvalidArgument, "b");
}

std::string blamed(const Json& object) {
  try {
    read_or_blame(object, read_letters);
  } catch (const RequestError& error) {
    return fmt::format("{}: {}", error.param(), error.what());
  } catch (const Error& error) {
    return fmt::format("nobody: {}", error.what());
  }
  return "fine";
}

TEST(ReadOrBlame, FindsTheMemberWithWhichItBegins) {
  EXPECT_EQ(blamed({{"a", 1}, {"c", 1}}), "fine");
  EXPECT_EQ(blamed({{"a", 1}, {"b", 1}, {"c", 1}}), "b: b");
  EXPECT_EQ(blamed({{"a", 1}, {"c", 1}, {"d", 1}, {"e", 1}}), "d: c and d");
  // Both are wrong: the field goes with the message.
  EXPECT_EQ(blamed({{"b", 1}, {"c", 1}, {"d", 1}}), "d: c and d");
}

TEST(ReadOrBlame, DoesNotWorkForHugeObjects) {
  Json object{{"b", 1}};
  for (int i = 0; i < 1000; ++i) object[std::to_string(i)] = i;
  int calls = 0;
  const auto read = [&](const Json& some) {
    ++calls;
    read_letters(some);
  };
  EXPECT_THROW(read_or_blame(object, read), Error);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(blamed(object), "nobody: b");
}

}  // namespace
}  // namespace bl::openai
