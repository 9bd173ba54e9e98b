#include "api/logprobs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>

#include "../engine/word_tokenizer.h"
#include "base/json.h"
#include "base/utf8.h"
#include "engine/answer_text.h"
#include "support/data.h"

namespace bl::test {
namespace {

using openai::Logprobs;

constexpr float kNever = -std::numeric_limits<float>::infinity();

TokenLogprobs one(std::int32_t id, std::vector<TokenChance> best = {}) {
  return {{id, -0.5f}, std::move(best)};
}

// Returns an answer of these tokens behind a prompt, with the text that the engine would give.
Answer answer_of(const Tokenizer& tokenizer, const std::vector<std::int32_t>& prompt,
                 const std::vector<std::int32_t>& ids) {
  Answer answer;
  answer.ids = ids;
  AnswerText text(tokenizer, true, {}, prompt);
  for (const std::int32_t id : ids) {
    answer.text += text.push(id);
    answer.logprobs.push_back(one(id));
  }
  answer.text += text.finish();
  return answer;
}

std::string bytes_of(const Json& chat) {
  std::string bytes;
  for (const Json& token : chat.at("content")) {
    for (const Json& byte : token.at("bytes")) bytes += static_cast<char>(byte.get<int>());
  }
  return bytes;
}

// A byte-level vocabulary: "Ġ" is a space, "â" is E2, "ĸ" 96, "ģ" 81, "ä" E4, "½" BD, "ł" A0.
class ByteLevelLogprobs : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ =
      make_word_tokenizer({"Hi", "Ġthere", "Ġâĸ", "ģ", "ä", "½ł!", "x"}, {"<s>", "</s>", " there"});
  Logprobs logprobs_{*tokenizer_};
};

TEST_F(ByteLevelLogprobs, PiecesOfCharactersAreTheirBytes) {
  // "Hi there ▁ 你!" in pieces, and the end token.
  const Answer answer = answer_of(*tokenizer_, {6}, {0, 1, 2, 3, 4, 5, 8});
  ASSERT_EQ(answer.text, "Hi there \u2581\u4f60!");
  const Json chat = logprobs_.chat(answer, std::vector<std::int32_t>{6});
  EXPECT_EQ(bytes_of(chat), answer.text + "</s>");
  EXPECT_EQ(chat.at("content").at(2).at("token"), " \\xe2\\x96");
  EXPECT_EQ(chat.at("content").at(2).at("bytes"), (Json{0x20, 0xe2, 0x96}));
  EXPECT_EQ(chat.at("content").at(3).at("token"), "\\x81");
  EXPECT_EQ(chat.at("content").at(6).at("token"), "</s>");

  const Json plain = logprobs_.completion(answer, std::vector<std::int32_t>{6});
  EXPECT_EQ(plain.at("tokens"), (Json{"Hi", " there", "bytes: \\xe2\\x96", "bytes:\\x81",
                                      "bytes:\\xe4", "bytes:\\xbd\\xa0!", "</s>"}));
  // " ▁" begins at 8; its second character, at 9, goes on with the next token.
  EXPECT_EQ(plain.at("text_offset"), (Json{0, 2, 8, 9, 10, 10, 12}));
}

TEST_F(ByteLevelLogprobs, ACharacterThatThePromptBeginsBelongsToTheAnswer) {
  const std::vector<std::int32_t> prompt{6, 2};
  const Answer answer = answer_of(*tokenizer_, prompt, {3, 0});
  ASSERT_EQ(answer.text, "\u2581Hi");
  EXPECT_EQ(logprobs_.completion(answer, prompt).at("text_offset"), (Json{0, 1}));
}

TEST_F(ByteLevelLogprobs, WhatCannotBeIsANumberAndNoNameIsThereTwice) {
  Answer answer = answer_of(*tokenizer_, {6}, {0});
  // Two tokens are called " there", and the likelier one comes first.
  answer.logprobs = {{{6, kNever}, {{1, -0.25f}, {9, -2.0f}, {0, kNever}}}};
  const Json plain = logprobs_.completion(answer, std::vector<std::int32_t>{6});
  EXPECT_EQ(plain.at("token_logprobs"), Json{-9999.0});
  EXPECT_EQ(plain.at("top_logprobs"), (Json{{{" there", -0.25}, {"Hi", -9999.0}}}));
  const Json chat = logprobs_.chat(answer, std::vector<std::int32_t>{6});
  EXPECT_EQ(chat.at("content").at(0).at("logprob"), -9999.0);
  EXPECT_EQ(chat.at("content").at(0).at("top_logprobs").size(), 3u);
}

TEST_F(ByteLevelLogprobs, HealedTokensAreThereIfTheySayMoreThanThePrompt) {
  auto tokenizer = make_word_tokenizer({"Ġ", "w", "or", "Ġw", "orld", "!", "Ġworld"});
  const Logprobs logprobs(*tokenizer);
  const std::vector<std::int32_t> prompt{5, 0, 1, 2};  // "! wor"
  Answer answer;
  answer.kept = 1;
  answer.healed = {3, 4};  // " w", "orld"
  answer.healed_logprobs = {one(3), one(4)};
  answer.ids = {5};
  answer.logprobs = {one(5)};
  answer.text = "ld!";
  Json plain = logprobs.completion(answer, prompt);
  EXPECT_EQ(plain.at("tokens"), (Json{"orld", "!"}));
  EXPECT_EQ(plain.at("text_offset"), (Json{0, 2}));
  // Healed tokens that repeat the prompt are not shown.
  answer.healed = {0, 1, 2};
  answer.healed_logprobs = {one(0), one(1), one(2)};
  answer.text = "!";
  plain = logprobs.completion(answer, prompt);
  EXPECT_EQ(plain.at("tokens"), Json{"!"});
  EXPECT_EQ(plain.at("text_offset"), Json{0});
}

TEST(ByteFallbackLogprobs, TokensOfBytesAreThese) {
  const auto tokenizer =
      make_word_tokenizer({"<0xE4>", "<0xBD>", "<0xA0>", "a", "<0x62>"}, {}, "ByteFallback");
  const std::vector<std::int32_t> prompt{3, 0};
  const Answer answer = answer_of(*tokenizer, prompt, {1, 2, 4, 3});
  ASSERT_EQ(answer.text, "\u4f60ba");
  const Logprobs logprobs(*tokenizer);
  EXPECT_EQ(bytes_of(logprobs.chat(answer, prompt)),
            "\xbd\xa0"
            "ba");
  const Json plain = logprobs.completion(answer, prompt);
  EXPECT_EQ(plain.at("tokens"), (Json{"bytes:\\xbd", "bytes:\\xa0", "b", "a"}));
  EXPECT_EQ(plain.at("text_offset"), (Json{0, 0, 1, 2}));
}

TEST_F(ByteLevelLogprobs, OfAPrompt) {
  Answer answer;
  answer.prompt_logprobs = {one(1, {{0, -0.25f}, {1, -0.5f}}), {{6, kNever}, {{0, -1.0f}}}};
  const Json list = logprobs_.prompt(answer);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_TRUE(list[0].is_null());
  EXPECT_EQ(list[1], (Json{{"0", {{"logprob", -0.25}, {"rank", 1}, {"decoded_token", "Hi"}}},
                           {"1", {{"logprob", -0.5}, {"rank", 2}, {"decoded_token", " there"}}}}));
  EXPECT_EQ(list[2], (Json{{"0", {{"logprob", -1.0}, {"rank", 1}, {"decoded_token", "Hi"}}},
                           {"6", {{"logprob", -9999.0}, {"decoded_token", "x"}}}}));
}

// With real tokenizers, the joined bytes of the tokens are the text, and the text continues with
// each token at its offset.
class RealLogprobs : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(shared_dir() / "tokenizers" / "llama2")) {
      GTEST_SKIP() << "no shared/tokenizers (BITLOOM_DATA)";
    }
  }
  static std::unique_ptr<Tokenizer> load(const char* name) {
    const auto packed = shared_dir() / "tokenizers" / name / "tokenizer.json.xz";
    const auto folder = scratch_dir("logprobs-tokenizer");
    const std::string command =
        "xz -dc '" + packed.string() + "' > '" + (folder / "tokenizer.json").string() + "'";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return Tokenizer::load(folder);
  }
  // Returns the rest of a text from character `offset` on.
  static std::string_view from(std::string_view text, std::size_t offset) {
    for (std::size_t c = 0; c < offset && !text.empty(); ++c) {
      text.remove_prefix(utf8_size(text.front()));
    }
    return text;
  }
};

TEST_F(RealLogprobs, TokensSayTheText) {
  const std::string text =
      "It\u2019s 5 \u2581 o\u2019clock:  na\u00efve caf\u00e9s,\n\n\u4f60\u597d "
      "\U0001f9f5\U0001fae8 \u0928\u092e\u0938\u094d\u0924\u0947 <0x41> !";
  for (const char* name : {"llama2", "llama3_1", "gemma3", "qwen3"}) {
    const auto tokenizer = load(name);
    const Logprobs logprobs(*tokenizer);
    const std::vector<std::int32_t> all = tokenizer->encode("Once upon " + text);
    for (std::size_t kept = 2; kept + 1 < all.size(); ++kept) {
      const std::vector<std::int32_t> prompt(all.begin(), all.begin() + static_cast<long>(kept));
      const std::vector<std::int32_t> ids(all.begin() + static_cast<long>(kept), all.end());
      const Answer answer = answer_of(*tokenizer, prompt, ids);
      // A character that the prompt begins belongs to the answer.
      std::string said;
      for (const std::int32_t id : prompt) said += TokenBytes(*tokenizer).of(id);
      std::string whole;
      said.erase(0, decode_lossy(said, false, whole));
      EXPECT_EQ(said + bytes_of(logprobs.chat(answer, prompt)), answer.text) << name << kept;
      const Json plain = logprobs.completion(answer, prompt);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::string token = plain.at("tokens").at(i);
        if (token.starts_with("bytes:")) continue;
        const auto offset = plain.at("text_offset").at(i).get<std::size_t>();
        EXPECT_TRUE(from(answer.text, offset).starts_with(token)) << name << kept << token;
      }
    }
  }
}

// A first word that has lost its space moves all offsets by one.
TEST_F(RealLogprobs, OffsetsOfATextThatStandsByItself) {
  const auto tokenizer = load("llama2");
  const std::vector<std::int32_t> prompt{1};
  std::vector<std::int32_t> ids = tokenizer->encode("Once upon", {.add_special = false});
  const Answer answer = answer_of(*tokenizer, prompt, ids);
  ASSERT_EQ(answer.text, "Once upon");
  const Json plain = Logprobs(*tokenizer).completion(answer, prompt);
  EXPECT_EQ(plain.at("tokens"), (Json{" Once", " upon"}));
  EXPECT_EQ(plain.at("text_offset"), (Json{0, 4}));
}

}  // namespace
}  // namespace bl::test
