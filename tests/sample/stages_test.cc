// The chain against the textbook on random rows: the same survivors, the same probabilities, the
// same draws; each stage alone and all of them together.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "chi_square.h"
#include "sample/philox.h"
#include "sample/sampler_chain.h"
#include "textbook.h"

namespace bl {
namespace {

using test::TextbookResult;
using test::TextbookRow;

constexpr float kInfValue = std::numeric_limits<float>::infinity();

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  double real(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  std::int64_t whole(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool coin(double chance = 0.5) { return real(0, 1) < chance; }
  std::int32_t id(std::size_t vocab) {
    return static_cast<std::int32_t>(whole(0, static_cast<std::int64_t>(vocab) - 1));
  }
  std::vector<std::int32_t> ids(std::size_t count, std::size_t vocab) {
    std::vector<std::int32_t> list(count);
    for (std::int32_t& id : list) id = this->id(vocab);
    return list;
  }
  std::mt19937& bits() { return random_; }

 private:
  std::mt19937 random_;
};

// Flat and steep rows, rows with many equal logits, rows with tokens that cannot be.
std::vector<float> random_logits(Dice& dice, std::size_t vocab) {
  const double spread = std::exp(dice.real(-2, 1.6));
  std::normal_distribution<double> normal(dice.real(-20, 20), spread);
  const bool stepped = dice.coin(0.25);
  const bool gaps = dice.coin(0.2);
  std::vector<float> logits(vocab);
  for (float& x : logits) {
    double value = normal(dice.bits());
    if (dice.coin(0.02)) value += dice.real(0, 8);
    if (stepped) value = std::round(value * 4) / 4;
    x = gaps && dice.coin(0.3) ? -kInfValue : static_cast<float>(value);
  }
  logits[static_cast<std::size_t>(dice.id(vocab))] = static_cast<float>(normal(dice.bits()));
  return logits;
}

// Text in which pieces come again, so that DRY has something to find.
std::vector<std::int32_t> random_history(Dice& dice, std::size_t vocab) {
  std::vector<std::int32_t> history;
  const auto size = static_cast<std::size_t>(dice.whole(0, 120));
  const std::size_t words = std::min<std::size_t>(vocab, dice.coin() ? 6 : 100);
  while (history.size() < size) {
    if (history.size() > 8 && dice.coin(0.3)) {
      const auto from = static_cast<std::size_t>(dice.whole(0, 7));
      for (std::size_t i = from; i < from + 6 && i < history.size(); ++i) {
        history.push_back(history[i]);
      }
    } else {
      history.push_back(dice.id(words));
    }
  }
  if (dice.coin(0.1)) history.push_back(static_cast<std::int32_t>(vocab) + 5);  // no token of ours
  return history;
}

TextbookRow random_row(Dice& dice) {
  constexpr std::array<std::size_t, 7> kSizes{2, 3, 33, 100, 400, 1500, 5000};
  const std::size_t vocab = kSizes[static_cast<std::size_t>(dice.whole(0, 6))];
  TextbookRow row;
  row.logits = random_logits(dice, vocab);
  row.history = random_history(dice, vocab);
  row.position = static_cast<std::uint64_t>(dice.whole(0, 1 << 20));
  row.generated = dice.whole(0, 20);
  return row;
}

using Change = std::function<void(SamplingParams&, TextbookRow&, Dice&)>;

struct StageCase {
  const char* name;
  Change change;
};

const std::vector<StageCase>& stage_cases() {
  static const std::vector<StageCase> kCases{
      {"plain", [](SamplingParams&, TextbookRow&, Dice&) {}},
      {"temperature", [](auto& p, auto&, Dice& d) { p.temperature = d.real(0.2, 3); }},
      {"repetition",
       [](auto& p, auto&, Dice& d) {
         p.repetition_penalty = d.real(0.5, 2);
         p.penalty_range = d.coin() ? -1 : d.whole(0, 150);
         p.repetition_decay = d.coin() ? 0 : d.whole(0, 60);
       }},
      {"presence and frequency",
       [](auto& p, auto&, Dice& d) {
         p.presence_penalty = d.real(-2, 2);
         p.frequency_penalty = d.real(-2, 2);
         p.penalize_prompt = p.presence_penalty > 0;  // in half of the rows the answer alone
         p.penalty_range = d.coin() ? -1 : d.whole(0, 150);
         p.repetition_decay = d.coin() ? 0 : d.whole(0, 60);
       }},
      {"bias",
       [](auto& p, TextbookRow& row, Dice& d) {
         for (const std::int32_t id : d.ids(5, row.logits.size())) {
           if (row.logits.size() > 20 && d.coin(0.2)) {
             p.logit_bias.push_back({id, -static_cast<double>(kInfValue)});
           } else {
             p.logit_bias.push_back({id, d.real(-10, 10)});
           }
         }
       }},
      {"DRY",
       [](auto& p, TextbookRow& row, Dice& d) {
         p.dry_multiplier = d.real(0.1, 2);
         p.dry_base = d.real(1, 2.5);
         p.dry_allowed_length = d.whole(1, 4);
         p.dry_range = d.coin() ? 0 : d.whole(1, 100);
         p.dry_breaker_tokens =
             d.ids(d.coin() ? 0 : 2, std::min<std::size_t>(row.logits.size(), 30));
       }},
      {"bars",
       [](auto& p, TextbookRow& row, Dice& d) {
         const std::size_t vocab = row.logits.size();
         if (vocab < 30) return;
         p.banned_tokens = d.ids(5, vocab);
         row.barred = d.ids(5, vocab);
         row.end_tokens = d.ids(2, vocab);
         p.stop_tokens = d.ids(2, vocab);
         p.min_tokens = d.whole(0, 20);
         p.ban_end_tokens = d.coin(0.2);
         if (d.coin()) p.allowed_tokens = d.ids(vocab / 2, vocab);
         if (d.coin()) {
           row.mask.resize((vocab + 31) / 32 - (d.coin(0.2) ? 1 : 0));
           for (std::uint32_t& word : row.mask)
             word = d.coin(0.3) ? ~0u : static_cast<std::uint32_t>(d.bits()());
         }
       }},
      {"top-n-sigma", [](auto& p, auto&, Dice& d) { p.top_n_sigma = d.real(0.1, 3); }},
      {"smoothing",
       [](auto& p, auto&, Dice& d) {
         p.smoothing_factor = d.real(0.05, 1);
         p.smoothing_curve = d.coin() ? 1 : d.real(1, 3);
         p.temperature = d.real(0.5, 2);
       }},
      {"top-k", [](auto& p, auto&, Dice& d) { p.top_k = d.whole(1, 300); }},
      {"large top-k", [](auto& p, auto&, Dice& d) { p.top_k = d.whole(4097, 4999); }},
      {"top-p", [](auto& p, auto&, Dice& d) { p.top_p = d.real(0.01, 0.9999); }},
      {"top-a", [](auto& p, auto&, Dice& d) { p.top_a = d.real(0.001, 1); }},
      {"min-p", [](auto& p, auto&, Dice& d) { p.min_p = d.coin(0.1) ? 1 : d.real(0.001, 1); }},
      {"tail-free", [](auto& p, auto&, Dice& d) { p.tfs = d.real(0.05, 0.999); }},
      {"typical", [](auto& p, auto&, Dice& d) { p.typical = d.real(0.05, 0.999); }},
      {"mirostat",
       [](auto& p, auto&, Dice& d) {
         p.mirostat_mode = 2;
         p.mirostat_tau = d.real(0, 6);
       }},
      {"last temperature",
       [](auto& p, auto&, Dice& d) {
         p.temperature_last = true;
         p.temperature = d.real(0.2, 3);
         p.min_p = d.real(0.001, 0.1);
       }},
      {"dynamic temperature",
       [](auto& p, auto&, Dice& d) {
         p.min_temp = d.real(0.1, 1);
         p.max_temp = p.min_temp + d.real(0.1, 3);
         p.temp_exponent = d.real(0.3, 3);
         p.temperature = d.real(0.2, 3);  // does not count
       }},
      {"XTC",
       [](auto& p, TextbookRow& row, Dice& d) {
         p.xtc_probability = d.coin(0.2) ? 1 : d.real(0.01, 1);
         p.xtc_threshold = d.real(0.001, 0.4);
         if (d.coin()) p.xtc_ignore_tokens = d.ids(row.logits.size() / 4, row.logits.size());
       }},
      {"skew",
       [](auto& p, auto&, Dice& d) {
         p.skew = d.real(-2, 2);
         p.top_k = d.whole(2, 400);
       }},
      {"adaptive", [](auto& p, auto&, Dice& d) { p.adaptive_target = d.real(0.05, 0.9); }},
      {"greedy", [](auto& p, auto&, Dice&) { p.temperature = 0; }},
  };
  return kCases;
}

struct Tally {
  double tolerance = 1e-6;
  int rows = 0;
  int doubtful = 0;
};

// What cannot be told from nothing in sums of doubles.
constexpr double kNothing = 1e-14;

// The distribution and the draw of one row; what lies on a border by rounding is counted instead.
void expect_textbook(const TextbookRow& row, const SamplingParams& params, Tally& tally) {
  SamplerChain chain(params);
  const TextbookResult expected = textbook(row, params, chain.state());
  ++tally.rows;
  if (expected.doubtful) {
    ++tally.doubtful;
    return;
  }
  SampleRow found;
  const PickArgs args = row.args();
  chain.find_distribution(args, found);
  std::vector<double> p(row.logits.size(), 0.0);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto id = static_cast<std::size_t>(found.ids[i]);
    p[id] = static_cast<double>(found.weights[i]) / found.mass;
    ASSERT_TRUE(expected.p[id] > 0 || p[id] < kNothing) << "token " << id << " should be cut";
    ASSERT_TRUE(i == 0 || found.ids[i - 1] < found.ids[i]);
  }
  for (std::size_t id = 0; id < p.size(); ++id) {
    if (expected.p[id] > kNothing) {
      ASSERT_GT(p[id], 0.0) << "token " << id << " was cut";
    }
    ASSERT_NEAR(p[id], expected.p[id], tally.tolerance) << "token " << id;
  }
  bool on_border = false;
  const double u = uniform_at(params.seed, row.position);
  const std::int32_t drawn = textbook_draw(expected, u, on_border);
  const Pick pick = chain.pick(args);
  if (!on_border) {
    ASSERT_EQ(pick.id, drawn);
  }
  ASSERT_NEAR(pick.probability, expected.p[static_cast<std::size_t>(pick.id)], tally.tolerance);
}

class StageTest : public testing::TestWithParam<StageCase> {};

TEST_P(StageTest, AgreesWithTheTextbook) {
  unsigned seed = 1;
  for (const char* c = GetParam().name; *c != 0; ++c) seed = seed * 31 + static_cast<unsigned>(*c);
  Dice dice(seed);
  Tally tally;
  for (int i = 0; i < 400; ++i) {
    TextbookRow row = random_row(dice);
    SamplingParams params = SamplingParams::plain();
    params.seed = dice.bits()();
    GetParam().change(params, row, dice);
    ASSERT_NO_THROW(validate(params));
    ASSERT_NO_FATAL_FAILURE(expect_textbook(row, params, tally)) << "row " << i;
  }
  EXPECT_LT(tally.doubtful, tally.rows / 10) << "too few rows say anything";
  RecordProperty("doubtful", tally.doubtful);
}

std::string name_of_case(const testing::TestParamInfo<StageCase>& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Each, StageTest, testing::ValuesIn(stage_cases()), name_of_case);

// A few stages at random, of those whose names may occur.
template <class MayOccur>
void change_some(SamplingParams& params, TextbookRow& row, Dice& dice, double most_share,
                 const MayOccur& may_occur) {
  const double share = dice.real(0, most_share);
  for (const StageCase& stage : stage_cases()) {
    if (may_occur(std::string_view(stage.name)) && dice.coin(share)) {
      stage.change(params, row, dice);
    }
  }
}

TEST(Stages, AnyMixtureAgreesWithTheTextbook) {
  Dice dice(2718);
  // Logits of size 25 are edited in float, and temperatures down to 0.2 and skews make more of
  // that.
  Tally tally{.tolerance = 1e-5};
  for (int i = 0; i < 4000; ++i) {
    TextbookRow row = random_row(dice);
    SamplingParams params = SamplingParams::plain();
    params.seed = dice.bits()();
    change_some(params, row, dice, 0.6, [](std::string_view name) { return name != "greedy"; });
    ASSERT_NO_FATAL_FAILURE(expect_textbook(row, params, tally)) << "row " << i;
  }
  EXPECT_LT(tally.doubtful, tally.rows / 5);
  RecordProperty("doubtful", tally.doubtful);
}

const std::vector<std::string>& orderable() {
  static const std::vector<std::string> kNames{
      "smoothing", "temperature", "top-k",    "top-p", "top-a", "min-p",
      "tail-free", "typical",     "mirostat", "xtc",   "skew",  "adaptive-p"};
  return kNames;
}

TEST(Stages, AnyOrderAgreesWithTheTextbook) {
  Dice dice(1618);
  Tally tally{.tolerance = 2e-5};
  for (int i = 0; i < 4000; ++i) {
    TextbookRow row = random_row(dice);
    SamplingParams params = SamplingParams::plain();
    params.seed = dice.bits()();
    change_some(params, row, dice, 0.4, [](std::string_view name) {
      return name != "greedy" && name != "last temperature" && name != "bars";
    });
    params.sampler_order = orderable();
    std::shuffle(params.sampler_order.begin(), params.sampler_order.end(), dice.bits());
    ASSERT_NO_THROW(validate(params));
    ASSERT_NO_FATAL_FAILURE(expect_textbook(row, params, tally)) << "row " << i;
  }
  EXPECT_LT(tally.doubtful, tally.rows / 4);
  RecordProperty("doubtful", tally.doubtful);
}

// Two stages in both orders: where the orders differ, so do the chains.
TEST(Stages, EveryPairInBothOrdersAgreesWithTheTextbook) {
  Dice dice(141);
  Tally tally{.tolerance = 1e-5};
  int different = 0;
  for (int i = 0; i < 1200; ++i) {
    TextbookRow row = random_row(dice);
    SamplingParams params = SamplingParams::plain();
    params.seed = dice.bits()();
    std::vector<std::string> pair = orderable();
    std::shuffle(pair.begin(), pair.end(), dice.bits());
    pair.resize(2);
    for (const StageCase& stage : stage_cases()) {
      const std::string_view name = stage.name;
      const bool named =
          name == pair[0] || name == pair[1] ||
          (name == "XTC" && (pair[0] == "xtc" || pair[1] == "xtc")) ||
          (name == "adaptive" && (pair[0] == "adaptive-p" || pair[1] == "adaptive-p"));
      if (named) stage.change(params, row, dice);
    }
    if (pair[0] != "temperature" && pair[1] != "temperature") params.temperature = 1;
    if (pair[0] != "top-k" && pair[1] != "top-k") params.top_k = 0;
    params.sampler_order = pair;
    ASSERT_NO_FATAL_FAILURE(expect_textbook(row, params, tally)) << "row " << i;
    const std::vector<double> one = textbook(row, params).p;
    std::swap(params.sampler_order[0], params.sampler_order[1]);
    ASSERT_NO_FATAL_FAILURE(expect_textbook(row, params, tally)) << "row " << i;
    const std::vector<double> other = textbook(row, params).p;
    double most = 0;
    for (std::size_t id = 0; id < one.size(); ++id)
      most = std::max(most, std::abs(one[id] - other[id]));
    different += most > 1e-3 ? 1 : 0;
  }
  EXPECT_GT(different, 300);
  EXPECT_LT(tally.doubtful, tally.rows / 10);
}

// The order that there is without one, said, is the same to the bit.
TEST(Stages, TheUsualOrderMayBeSaid) {
  Dice dice(577);
  for (int i = 0; i < 500; ++i) {
    TextbookRow row = random_row(dice);
    SamplingParams params = SamplingParams::plain();
    params.seed = dice.bits()();
    for (const StageCase& stage : stage_cases()) {
      if (std::string_view(stage.name) != "greedy" && dice.coin(0.3)) {
        stage.change(params, row, dice);
      }
    }
    SamplerChain usual(params);
    SamplingParams said = params;
    said.sampler_order = orderable();
    if (params.temperature_last || params.dynamic_temperature()) {
      const auto temperature = said.sampler_order.begin() + 1;
      std::rotate(temperature, temperature + 1, temperature + 8);
      said.temperature_last = false;
    }
    ASSERT_NO_THROW(validate(said));
    SamplerChain chain(said);
    EXPECT_EQ(chain.stage_names(), usual.stage_names());
    SampleRow expected, found;
    const PickArgs args = row.args();
    usual.find_distribution(args, expected);
    chain.find_distribution(args, found);
    ASSERT_EQ(found.ids, expected.ids);
    ASSERT_EQ(found.weights, expected.weights);
    ASSERT_EQ(chain.pick(args).id, usual.pick(args).id);
  }
}

TEST(Stages, LargeVocabulariesAgreeWithTheTextbook) {
  Dice dice(31415);
  Tally tally;
  for (int i = 0; i < 12; ++i) {
    TextbookRow row;
    row.logits = random_logits(dice, 131072);
    row.position = static_cast<std::uint64_t>(i);
    SamplingParams params = SamplingParams::plain();
    if (i % 3 == 0) params.top_p = dice.real(0.3, 0.99);
    if (i % 3 == 1) params.min_p = dice.real(0.001, 0.2);
    if (i % 3 == 2) params.top_k = dice.whole(10, 20000);
    ASSERT_NO_FATAL_FAILURE(expect_textbook(row, params, tally)) << "row " << i;
  }
}

// Frequencies of keyed draws, at 10⁻⁶ false alarms a case; the seeds are fixed, so that an outcome
// is too.
TEST_P(StageTest, DrawsFollowTheDistribution) {
  Dice dice(4242);
  TextbookRow row;
  row.logits = random_logits(dice, 400);
  row.history = random_history(dice, 400);
  SamplingParams params = SamplingParams::plain();
  params.seed = 99;
  GetParam().change(params, row, dice);
  SamplerChain chain(params);
  const SamplerState start = chain.state();
  const TextbookResult expected = textbook(row, params, start);
  std::vector<int> counts(row.logits.size(), 0);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    row.position = static_cast<std::uint64_t>(i);
    chain.restore(start);
    ++counts[static_cast<std::size_t>(chain.pick(row.args()).id)];
  }
  test::expect_frequencies(counts, expected.p, kDraws);
}

TEST(Stages, AThrownCoinHasTheSameDistributionAsItsExpectation) {
  Dice dice(77);
  TextbookRow row;
  row.logits = random_logits(dice, 300);
  SamplingParams params = SamplingParams::plain();
  params.top_k = 40;
  params.xtc_probability = 0.35;
  params.xtc_threshold = 0.02;
  const TextbookResult expected = textbook(row, params);
  params.xtc_random = true;
  SamplerChain chain(params);
  std::vector<int> counts(row.logits.size(), 0);
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) {
    row.position = static_cast<std::uint64_t>(i);
    ++counts[static_cast<std::size_t>(chain.pick(row.args()).id)];
  }
  test::expect_frequencies(counts, expected.p, kDraws);
}

}  // namespace
}  // namespace bl
