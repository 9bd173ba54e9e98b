#include "engine/token_text_index.h"

#include <gtest/gtest.h>

#include <vector>

#include "word_tokenizer.h"

namespace bl {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(TokenTextIndex, FindsWhatATokenSays) {
  const auto tokenizer = test::make_word_tokenizer({"Ġyes", "yes", "no", "ye"}, {"<|end|>"});
  const TokenTextIndex index(*tokenizer, 1000);
  EXPECT_EQ(index.find(" yes"), Ids{0});
  EXPECT_EQ(index.find("yes"), Ids{1});
  EXPECT_EQ(index.find("ye"), Ids{3});
  EXPECT_EQ(index.find("<|end|>"), Ids{4});
  for (const char* none : {"Ġyes", "YES", "y", "yes no", "", "<|en"}) {
    EXPECT_EQ(index.find(none), Ids{}) << none;
  }
  // A head that has fewer rows than the tokenizer has tokens.
  const TokenTextIndex cut(*tokenizer, 2);
  EXPECT_EQ(cut.find("yes"), Ids{1});
  EXPECT_EQ(cut.find("no"), Ids{});
}

TEST(TokenTextIndex, AByteThatIsATokenTwiceIsBoth) {
  const auto tokenizer = test::make_word_tokenizer({"<0x41>", "B", "A"}, {}, "ByteFallback");
  EXPECT_EQ(TokenTextIndex(*tokenizer, 3).find("A"), (Ids{0, 2}));
}

}  // namespace
}  // namespace bl
