#include "sample/token_sets.h"

#include <gtest/gtest.h>

#include "text/tokenizer.h"

namespace bl {
namespace {

TEST(TokenSets, TextsAndSpecialTokens) {
  const auto tokenizer = Tokenizer::from_json(R"({
      "added_tokens": [{"id": 5, "content": "<s>", "special": true}],
      "model": {"type": "BPE", "vocab": {"a": 0, "\n": 1, "b:": 2, "x\n": 3, "c": 4, "<s>": 5},
                "merges": []}})",
                                              "", "test");
  const std::vector<std::string> kTexts{"\n", ":"};
  EXPECT_EQ(tokens_containing(*tokenizer, kTexts, false), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(tokens_containing(*tokenizer, kTexts, true), (std::vector<std::int32_t>{1, 2, 3, 5}));
  EXPECT_EQ(xtc_protected_tokens(*tokenizer), (std::vector<std::int32_t>{1, 3, 5}));
  EXPECT_TRUE(tokens_containing(*tokenizer, {}, false).empty());
}

}  // namespace
}  // namespace bl
