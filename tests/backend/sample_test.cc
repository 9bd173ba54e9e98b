// The op `sample` of every backend that has it, against the naive one: the same tokens, bit by bit.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/device.h"
#include "support/sample_cases.h"

namespace bl::test {
namespace {

struct Sampled {
  std::vector<std::int32_t> ids;
  std::vector<float> log_probabilities;
  std::vector<float> logits;  // afterwards
};

class Sample : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    device_ = std::make_unique<Device>(GetParam());
    if (device_->ops().sample == nullptr) GTEST_SKIP() << GetParam() << " has no op `sample`";
  }

  static Sampled run(Device& device, const SampleCase& c, int padding) {
    const auto rows = static_cast<std::int64_t>(c.rules.size());
    const auto words = [&](const auto& values) {
      std::vector<std::int32_t> ints(values.size() * sizeof values[0] / 4);
      std::memcpy(ints.data(), values.data(), ints.size() * 4);
      return device.put(ints);
    };
    const TensorView logits = device.put_strided(c.logits, {rows, c.vocab}, padding);
    auto* ids = const_cast<std::int32_t*>(device.put(std::vector<std::int32_t>(c.rules.size())));
    const TensorView chances = device.put(std::vector<float>(c.rules.size(), -9.0f), {rows});
    device.ops().sample(
        device.context(),
        {.logits = logits,
         .rules = reinterpret_cast<const SampleRule*>(words(c.rules)),
         .edits = c.edits.empty() ? nullptr : reinterpret_cast<const LogitEdit*>(words(c.edits)),
         .max_edits = static_cast<std::int64_t>(c.edits.size()),
         .ids = ids,
         .log_probabilities = chances.as<float>()});
    return {device.get(ids, c.rules.size()), device.get(chances), device.get(logits)};
  }

  void expect_same(const SampleCase& c, int padding) {
    Device ref("ref");
    const Sampled expected = run(ref, c, 0);
    const Sampled found = run(*device_, c, padding);
    EXPECT_EQ(found.ids, expected.ids) << "vocab " << c.vocab << " padding " << padding;
    for (std::size_t r = 0; r < c.rules.size(); ++r) {
      // The logarithm is the library's.
      EXPECT_NEAR(found.log_probabilities[r], expected.log_probabilities[r], 1e-5) << r;
    }
    ASSERT_EQ(found.logits.size(), c.logits.size());
    EXPECT_EQ(std::memcmp(found.logits.data(), c.logits.data(), c.logits.size() * sizeof(float)), 0)
        << "the logits are not as they were";
  }

  std::unique_ptr<Device> device_;
};

TEST_P(Sample, GivesTheTokensOfTheNaiveOp) {
  std::mt19937_64 random(31);
  for (const std::int64_t vocab : {1, 2, 5, 32, 255, 1024, 4099, 32000}) {
    for (const std::int64_t rows : {1, 7, 64}) {
      if (rows * vocab > 7 * 32000) continue;
      for (int i = 0; i < 8; ++i) {
        expect_same(random_sample_case(random, vocab, rows), i % 2 == 0 ? 0 : 3 + i % 4);
      }
    }
  }
}

TEST_P(Sample, GivesTheTokensOfTheNaiveOpInLongRows) {
  std::mt19937_64 random(32);
  for (const std::int64_t vocab : {128256, 151936, 262144}) {
    for (const std::int64_t rows : {1, 2, 16})
      expect_same(random_sample_case(random, vocab, rows), 0);
  }
  expect_same(random_sample_case(random, 128256, 64), 0);
}

TEST_P(Sample, GivesTheSameAgain) {
  std::mt19937_64 random(33);
  const SampleCase c = random_sample_case(random, 128256, 16);
  const Sampled first = run(*device_, c, 0);
  for (int i = 0; i < 20; ++i) {
    const Sampled again = run(*device_, c, 0);
    EXPECT_EQ(again.ids, first.ids);
    EXPECT_EQ(again.log_probabilities, first.log_probabilities);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Sample, testing::ValuesIn(runnable_backends()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace bl::test
