#pragma once
#include <gtest/gtest.h>

#include <cctype>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "answer_oracle.h"
#include "core_test.h"
#include "word_tokenizer.h"

namespace bl::test {

// The engine without its thread, on a model that speaks in known pieces. With and without guesses:
// these change nothing.
class WordsTest : public CoreTest, public testing::WithParamInterface<bool> {
 protected:
  // With another `decoder` than that of bytes, the oracle does not know what the pieces say.
  void start_words(std::vector<std::string> pieces, FakeModel::Options options = {},
                   const char* decoder = "ByteLevel") {
    options.vocab = static_cast<std::int64_t>(pieces.size());
    options.gives_logits = true;
    tokenizer_ = make_word_tokenizer(pieces, {}, decoder);
    SpeculationOptions speculation;
    const std::int64_t running = options.logit_rows;
    if (GetParam()) {
      speculation = {scripted(0.7, options.vocab), 5};
      options.logit_rows *= 4;
    }
    start(options, running, tokenizer_.get(), std::move(speculation));
    oracle_ = std::make_unique<AnswerOracle>(*model_, std::move(pieces));
  }
  Request words(std::size_t prompt, std::int32_t seed, std::int64_t max_tokens) {
    Request wanted = request(text(prompt, seed), max_tokens);
    for (std::int32_t& id : wanted.prompt) {
      id %= static_cast<std::int32_t>(model_->facts().vocab);
    }
    return wanted;
  }
  void expect_as_defined(const Asked& asked) {
    for (std::size_t i = 0; i < asked.ids.size(); ++i) {
      const auto expected = oracle_->answer(asked.open->request, static_cast<std::int32_t>(i));
      EXPECT_EQ(asked.ids[i], expected.ids) << asked.errors[i];
      EXPECT_EQ(asked.texts[i], expected.text);
      EXPECT_EQ(asked.healed[i], expected.healed);
      EXPECT_EQ(asked.usages[i].rewinds, expected.rewinds);
      const std::vector<WithheldText>& suppressed = asked.answers[i].suppressed;
      ASSERT_EQ(suppressed.size(), expected.suppressed.size());
      for (std::size_t hit = 0; hit < suppressed.size(); ++hit) {
        EXPECT_EQ(suppressed[hit].ids, expected.suppressed[hit].ids);
        EXPECT_EQ(suppressed[hit].text, expected.suppressed[hit].text);
      }
      EXPECT_EQ(asked.usages[i].generated_tokens, static_cast<std::int64_t>(expected.ids.size()));
    }
  }
  static std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(c));
    return text;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<AnswerOracle> oracle_;
};

}  // namespace bl::test
