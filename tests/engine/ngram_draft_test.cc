#include "engine/ngram_draft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "word_tokenizer.h"

namespace bl {
namespace {

using Ids = std::vector<std::int32_t>;

struct Guesser {
  Ids guess(const Ids& text, std::int64_t most = 4) {
    DraftJob job{.text = text, .same = same, .most = most, .memory = &memory};
    draft.propose({&job, 1});
    same = static_cast<std::int64_t>(text.size());
    confidence = job.confidence;
    return job.ids;
  }
  NgramDraft draft{2};
  std::unique_ptr<DraftMemory> memory;
  std::int64_t same = 0;
  std::size_t confidence = 0;
};

TEST(NgramDraft, GoesOnAsBefore) {
  Guesser guesser;
  EXPECT_EQ(guesser.guess({1, 2, 3, 4, 5, 6, 7, 9, 2, 3}), (Ids{4, 5, 6, 7}));
  EXPECT_EQ(guesser.confidence, 0u);
  EXPECT_EQ(guesser.guess({1, 2, 3, 4, 5, 6, 7, 9, 2, 3, 8}), Ids{});
  EXPECT_EQ(Guesser().guess({}), Ids{});
  EXPECT_EQ(Guesser().guess({5}), Ids{});
  EXPECT_EQ(Guesser().guess({5, 5}), Ids{});
}

TEST(NgramDraft, TheLongestMatchFirstThenTheNewest) {
  // "2 3" stood last before 9, but "1 2 3" before 4.
  EXPECT_EQ(Guesser().guess({1, 2, 3, 4, 0, 7, 2, 3, 9, 0, 1, 2, 3}, 1), Ids{4});
  EXPECT_EQ(Guesser().guess({1, 2, 3, 4, 0, 1, 2, 3, 9, 0, 1, 2, 3}, 1), Ids{9});
}

TEST(NgramDraft, ALoopGoesOnFromItsOwnGuess) {
  EXPECT_EQ(Guesser().guess({1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2}, 7), (Ids{3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(Guesser().guess({4, 4, 4, 4}, 5), (Ids{4, 4, 4, 4, 4}));
}

// What is known is looked at where it agrees with more of the text than the text itself does.
TEST(NgramDraft, GoesOnAsAKnownTextDoes) {
  const auto tokenizer = test::make_word_tokenizer(test::letter_pieces(26, 26));
  const auto guess = [&](const char* text, std::int64_t least = 2) {
    NgramDraft draft(least, "abcdefgabx");
    draft.check_target(tokenizer.get(), 26);
    const Ids ids = tokenizer->encode(text);
    std::unique_ptr<DraftMemory> memory;
    DraftJob job{.text = ids, .most = 4, .memory = &memory};
    draft.propose({&job, 1});
    return tokenizer->decode(job.ids, false);
  };
  EXPECT_EQ(guess("qbc"), "defg");
  EXPECT_EQ(guess("qab"), "x");  // the newest, to its end
  EXPECT_EQ(guess("gab"), "x");
  EXPECT_EQ(guess("qabc"), "defg");
  EXPECT_EQ(guess("qc"), "");
  EXPECT_EQ(guess("qc", 1), "defg");
  EXPECT_EQ(guess("qbcmnqbc"), "mnqb");  // the text's own "qbc" is longer
  EXPECT_EQ(guess("pbcmnqbc"), "mnqb");  // and of equal ones comes first
  EXPECT_EQ(guess("abx"), "");
  EXPECT_THROW(NgramDraft(2, "abc").check_target(nullptr, 20), Error);
}

TEST(NgramDraft, LongMatchesAreSurer) {
  Ids text;
  for (std::int32_t i = 0; i < 40; ++i) text.push_back(i);
  Guesser guesser;
  EXPECT_EQ(guesser.guess(text), Ids{});
  std::vector<std::size_t> seen;
  for (std::int32_t i = 0; i < 20; ++i) {
    text.push_back(i);
    guesser.guess(text);
    seen.push_back(guesser.confidence);
  }
  EXPECT_EQ(seen[2], 0u);
  EXPECT_EQ(seen[5], 1u);
  EXPECT_EQ(seen[15], 2u);
}

// A text that grows and is cut guesses what a new one of the same tokens would, and what a search
// of the whole text finds, as far as it looks.
TEST(NgramDraft, GrowingAndCuttingLeaveNoTrace) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const std::int32_t alphabet = 2 + static_cast<std::int32_t>(random() % 30);
    Guesser guesser;
    Ids text;
    for (int step = 0; step < 120; ++step) {
      if (random() % 10 == 0 && !text.empty()) {
        text.resize(text.size() - 1 - random() % std::min<std::size_t>(text.size(), 9));
        guesser.same = std::min(guesser.same, static_cast<std::int64_t>(text.size()));
      }
      for (std::size_t n = 1 + random() % 4; n > 0; --n) {
        text.push_back(static_cast<std::int32_t>(random()) & 0x7fffffff);
        text.back() %= alphabet;
      }
      const Ids guess = guesser.guess(text, 3);
      // The longest match there is, by trying every place.
      std::size_t longest = 0;
      for (std::size_t place = 1; place < text.size(); ++place) {
        std::size_t length = 0;
        while (length < place && length < 32 &&
               text[place - 1 - length] == text[text.size() - 1 - length]) {
          ++length;
        }
        longest = std::max(longest, length);
      }
      ASSERT_EQ(guess.empty(), longest < 2);
      if (guess.empty()) continue;
      ASSERT_EQ(guess.size(), 3u);
      // What it guesses follows the last two tokens somewhere.
      bool found = false;
      for (std::size_t place = 2; place < text.size(); ++place) {
        found = found || (text[place] == guess[0] && text[place - 1] == text[text.size() - 1] &&
                          text[place - 2] == text[text.size() - 2]);
      }
      ASSERT_TRUE(found);
    }
  }
}

// Chains of equal tokens must not make a look-up slow.
TEST(NgramDraft, TheSameTokenOverAndOver) {
  Guesser guesser;
  Ids text;
  for (int i = 0; i < 20000; ++i) {
    text.push_back(i % 1000 == 0 ? 8 : 7);
    guesser.guess(text);
  }
  // It has stayed with the match that was right, a thousand tokens ago.
  EXPECT_EQ(guesser.guess(text, 2), (Ids{8, 7}));
}

}  // namespace
}  // namespace bl
