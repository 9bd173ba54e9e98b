// A place that is drawn again behind a banned string has the distribution that the ban leaves.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "../sample/chi_square.h"
#include "words_test.h"

namespace bl {
namespace {

constexpr int kRequests = 60;
constexpr int kAnswers = 128;  // of each request
constexpr double kTemperature = 8;

using RedrawTest = test::WordsTest;
using Pair = std::pair<std::int32_t, std::int32_t>;

class Shares {
 public:
  explicit Shares(const std::vector<float>& row) {
    for (const float logit : row) weights_.push_back(std::exp(logit / kTemperature));
  }
  // The share of a token where those of `barred` may not follow.
  double of(std::int32_t id, const std::set<std::int32_t>& barred = {}) const {
    double total = 0;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (!barred.contains(static_cast<std::int32_t>(i))) total += weights_[i];
    }
    return weights_[static_cast<std::size_t>(id)] / total;
  }

 private:
  std::vector<double> weights_;
};

Request many(Request wanted, int number) {
  SamplingParams plain = SamplingParams::plain();
  plain.max_tokens = wanted.sampling.max_tokens;
  plain.temperature = kTemperature;
  plain.n = kAnswers;
  plain.seed = static_cast<std::uint64_t>(number);
  wanted.sampling = std::move(plain);
  return wanted;
}

TEST_P(RedrawTest, ABannedTokenLeavesTheSharesOfTheOthers) {
  start_words(test::letter_pieces(6, 6), {.logit_rows = 128, .pages = 256});
  for (const char* banned : {"a", "d"}) {
    std::vector<int> counts(6, 0);
    const std::size_t before = asked_.size();
    for (int i = 0; i < kRequests; ++i) {
      Request wanted = many(words(20, 3, 1), i);
      wanted.sampling.banned_strings = {banned};
      ask(std::move(wanted));
    }
    run_all(20000);
    for (std::size_t i = before; i < asked_.size(); ++i) {
      for (const auto& ids : asked_[i].ids) ++counts[static_cast<std::size_t>(ids.at(0))];
    }
    const std::int32_t gone = banned[0] - 'a';
    const Shares shares(model_->row(asked_[before].open->request.prompt));
    std::vector<double> expected(6, 0);
    for (std::int32_t id = 0; id < 6; ++id) {
      if (id != gone) expected[static_cast<std::size_t>(id)] = shares.of(id, {gone});
    }
    test::expect_frequencies(counts, expected, kRequests * kAnswers);
  }
}

// The string begins with the first token, so the draw of the second one is repeated, too: behind
// another first token, and no longer with the number that had completed the string.
TEST_P(RedrawTest, TokensBehindTheRedrawnOneHaveTheModelsShares) {
  start_words(test::letter_pieces(4, 4), {.logit_rows = 128, .pages = 256});
  // The two tokens that the model likes best, so that the string comes up in most answers.
  std::vector<std::int32_t> prompt = words(20, 3, 2).prompt;
  const std::int32_t first_banned = model_->follows(prompt);
  prompt.push_back(first_banned);
  const std::int32_t second_banned = model_->follows(prompt);
  prompt.pop_back();
  const std::string banned{static_cast<char>('a' + first_banned),
                           static_cast<char>('a' + second_banned)};
  std::map<Pair, int> seen;
  std::int64_t rewinds = 0;
  for (int i = 0; i < kRequests; ++i) {
    Request wanted = many(words(20, 3, 2), i);
    wanted.sampling.banned_strings = {banned};
    ask(std::move(wanted));
  }
  run_all(20000);
  for (const Asked& asked : asked_) {
    for (const auto& ids : asked.ids) ++seen[{ids.at(0), ids.at(1)}];
    for (const Usage& usage : asked.usages) rewinds += usage.rewinds;
  }
  EXPECT_GT(rewinds, 1000);
  std::map<Pair, double> expected;
  const std::function<void(double, const std::set<std::int32_t>&)> spread =
      [&](double share, const std::set<std::int32_t>& barred) {
        const Shares first(model_->row(prompt));
        for (std::int32_t a = 0; a < 4; ++a) {
          if (barred.contains(a)) continue;
          std::vector<std::int32_t> text = prompt;
          text.push_back(a);
          const Shares second(model_->row(text));
          for (std::int32_t b = 0; b < 4; ++b) {
            const double both = share * first.of(a, barred) * second.of(b);
            if (a == first_banned && b == second_banned) {
              spread(both, {first_banned});
            } else {
              expected[{a, b}] += both;
            }
          }
        }
      };
  spread(1, {});
  std::vector<int> counts;
  std::vector<double> shares;
  for (const auto& [pair, share] : expected) {
    shares.push_back(share);
    counts.push_back(seen[pair]);
  }
  test::expect_frequencies(counts, shares, kRequests * kAnswers);
}

INSTANTIATE_TEST_SUITE_P(Guesses, RedrawTest, testing::Bool());

}  // namespace
}  // namespace bl
