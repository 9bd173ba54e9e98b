#include "engine/answer_text.h"

#include <gtest/gtest.h>

#include "word_tokenizer.h"

namespace bl {
namespace {

// A row of tokens that are bytes is text when something else follows, and a prompt may end in one.
TEST(AnswerText, WhatThePromptSaysInBytesIsNotTheAnswers) {
  const auto tokenizer =
      test::make_word_tokenizer({"<0xE4>", "<0xBD>", "<0xA0>", "a"}, {}, "ByteFallback");
  const auto answer = [&](std::vector<std::int32_t> before, const std::vector<std::int32_t>& ids) {
    AnswerText text(*tokenizer, true, {}, before);
    std::string all;
    for (const std::int32_t id : ids) all += text.push(id);
    return all + text.finish();
  };
  EXPECT_EQ(answer({3, 0, 1, 2}, {3}), "a");
  EXPECT_EQ(answer({3, 0, 1, 2}, {0, 1, 2, 3}), "\u4f60a");
  EXPECT_EQ(answer({0, 1, 2}, {}), "");
  // A character that it only begins is.
  EXPECT_EQ(answer({3, 0, 1}, {2, 3}), "\u4f60a");
  EXPECT_EQ(answer({3, 0}, {1, 2}), "\u4f60");
  EXPECT_EQ(answer({3, 0, 1, 2, 0}, {1, 2}), "\u4f60");
  // Rows may be longer than what is looked back at.
  std::vector<std::int32_t> row;
  for (int i = 0; i < 60; ++i) row.push_back(i % 3);
  EXPECT_EQ(answer(row, {3}), "a");
  for (std::size_t size = 1; size < 60; ++size) {
    std::vector<std::int32_t> part(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(size));
    std::vector<std::int32_t> rest(row.begin() + static_cast<std::ptrdiff_t>(size), row.end());
    EXPECT_EQ(answer(part, rest).size(), 60 - size / 3 * 3) << size;
  }
}

// … nor when the newest tokens are taken back.
TEST(AnswerText, NorWhenTheAnswerBeginsAgain) {
  const auto tokenizer =
      test::make_word_tokenizer({"<0xE4>", "<0xBD>", "<0xA0>", "a", "b"}, {}, "ByteFallback");
  SamplingParams params;
  params.banned_strings = {"a"};
  const std::vector<std::int32_t> before{3, 0, 1, 2};
  AnswerText text(*tokenizer, true, AnswerRules(params), before);
  text.push(3);
  ASSERT_TRUE(text.is_banned());
  EXPECT_EQ(text.take_back(1, before), "a");
  EXPECT_EQ(text.push(4), "b");
}

// A special token that says nothing does not end the row in which it stands.
TEST(AnswerText, WhatIsBannedMayStandInARowAroundASpecialToken) {
  const auto tokenizer =
      test::make_word_tokenizer({"<0x61>", "<0x62>", "<0x63>", "x"}, {"<unseen>"}, "ByteFallback");
  struct Case {
    const char* banned;
    std::vector<std::int32_t> ids;
    bool closes;
    std::size_t open;
    const char* said;
  };
  for (const Case& c : std::vector<Case>{{"ab", {3, 0, 1, 4}, true, 3, "ab"},
                                         {"ab", {3, 0, 4, 1}, true, 3, "ab"},
                                         {"ab", {0, 4, 1, 4, 3}, false, 5, "abx"},
                                         {"bc", {0, 1, 2, 3}, false, 3, "bcx"},
                                         {"bc", {0, 4, 1, 4, 2, 3}, false, 4, "bcx"},
                                         {"xa", {3, 0, 4}, true, 3, "xa"}}) {
    SCOPED_TRACE(c.banned + testing::PrintToString(c.ids));
    SamplingParams params;
    params.banned_strings = {c.banned};
    AnswerText text(*tokenizer, true, AnswerRules(params), {});
    for (const std::int32_t id : c.ids) {
      EXPECT_FALSE(text.is_banned());
      text.push(id);
    }
    if (c.closes) text.close();
    ASSERT_TRUE(text.is_banned());
    ASSERT_EQ(text.open_tokens(), c.open);
    EXPECT_EQ(text.take_back(c.open, std::span(c.ids).first(c.ids.size() - c.open)), c.said);
  }
}

// A row of bytes is certain at its end only, so all of it is decoded again, however long it is.
TEST(AnswerText, ALongRowOfBytesSurvivesARewind) {
  const auto tokenizer = test::make_word_tokenizer({"<0xE4>", "<0xBD>", "<0xA0>", "a", "b"},
                                                   {"<unseen>"}, "ByteFallback");
  SamplingParams params;
  params.banned_strings = {"a"};
  // Of the row so many characters are the prompt's, and a special token stands within.
  for (const int prompts : {0, 1, 7, 20}) {
    for (const int answers : {1, 5, 6, 7, 40}) {
      SCOPED_TRACE(std::to_string(prompts) + " " + std::to_string(answers));
      std::vector<std::int32_t> ids{4};
      const auto add = [&](int characters) {
        for (int i = 0; i < characters; ++i) ids.insert(ids.end(), {0, 1, 2});
      };
      add(prompts);
      AnswerText text(*tokenizer, true, AnswerRules(params), ids);
      const std::size_t before = ids.size();
      ids.push_back(5);
      add(answers);
      std::string all;
      for (std::size_t i = before; i < ids.size(); ++i) all += text.push(ids[i]);
      text.push(3);
      ASSERT_TRUE(text.is_banned());
      const std::size_t open = text.open_tokens();
      ids.resize(ids.size() - (open - 1));
      text.take_back(open, ids);
      for (const std::int32_t id : {0, 1, 2, 4}) all += text.push(id);
      all += text.finish();
      std::string expected;
      for (std::size_t i = before; i < ids.size(); ++i) expected += ids[i] == 0 ? "\u4f60" : "";
      EXPECT_EQ(all, expected + "\u4f60b");
    }
  }
}

// Bytes that are no text stand for one character each, and those of the prompt are its own.
TEST(AnswerText, StrayBytesOfThePromptAreNotTheAnswers) {
  const auto tokenizer = test::make_word_tokenizer({"<0xE4>", "<0xBD>", "a"}, {}, "ByteFallback");
  for (const std::size_t bytes : {4u, 10u, 40u}) {
    std::vector<std::int32_t> before(bytes, 1);
    AnswerText text(*tokenizer, true, {}, before);
    std::string all = text.push(1);
    all += text.push(2);
    all += text.finish();
    EXPECT_EQ(all, "\ufffda") << bytes;
  }
}

}  // namespace
}  // namespace bl
