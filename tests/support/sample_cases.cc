#include "support/sample_cases.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bl::test {
namespace {

using Bits = std::mt19937_64;

std::int64_t below(Bits& random, std::int64_t n) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
}
double uniform(Bits& random) { return std::uniform_real_distribution<double>(0, 1)(random); }
template <class T>
T one_of(Bits& random, std::initializer_list<T> values) {
  return values.begin()[below(random, static_cast<std::int64_t>(values.size()))];
}

void fill_row(Bits& random, float* row, std::int64_t vocab) {
  const auto kind = below(random, 9);
  const float spread = one_of(random, {0.01f, 1.0f, 3.0f, 8.0f});
  std::normal_distribution<float> normal(0, spread);
  for (std::int64_t i = 0; i < vocab; ++i) row[i] = normal(random);
  const auto at = [&] { return row + below(random, vocab); };
  switch (kind) {
    case 0:  // a few tokens far above a bell
      for (int i = 0; i < 60; ++i) *at() = 18 - 0.1f * static_cast<float>(i);
      break;
    case 1:  // few values, many equals
      for (std::int64_t i = 0; i < vocab; ++i) row[i] = std::round(row[i] * 2) / 2;
      break;
    case 2:
      std::fill_n(row, vocab, one_of(random, {0.0f, -0.0f, -7.25f, 3e38f, 1e-41f}));
      break;
    case 3:
      for (std::int64_t i = 0; i < vocab; ++i) {
        if (below(random, 3) > 0) row[i] = -std::numeric_limits<float>::infinity();
      }
      *at() = 1;
      break;
    case 4:  // differences that scores round away
      for (std::int64_t i = 0; i < vocab; ++i) row[i] *= 1e-7f;
      *at() = 8;
      break;
    case 5:
      if (below(random, 3) == 0) {
        *at() = one_of(random, {std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity()});
      }
      break;
    case 6:
      if (below(random, 3) == 0) {
        std::fill_n(row, vocab, -std::numeric_limits<float>::infinity());
      }
      break;
    default:
      break;
  }
}

SampleRule random_rule(Bits& random, std::int64_t vocab) {
  SampleRule rule;
  const auto kind = below(random, 10);
  rule.kind = kind == 0   ? SampleRule::Kind::kNone
              : kind == 1 ? SampleRule::Kind::kLikeliest
                          : SampleRule::Kind::kDraw;
  rule.draw = one_of<std::uint64_t>(random, {random(), random(), 0, ~std::uint64_t{0} << 11});
  rule.inverse = static_cast<float>(1 / one_of(random, {1.0, 0.8, 0.7, 1.5, 0.01, 1000.0}));
  if (below(random, 2) == 0) {
    const std::int64_t k = one_of<std::int64_t>(
        random, {1, 2, 40, 50, 1000, 5000, vocab - 1, 1 + below(random, vocab)});
    rule.top_k = static_cast<std::int32_t>(std::clamp<std::int64_t>(k, 0, vocab - 1));
  }
  if (below(random, 2) == 0) {
    rule.top_p = one_of(random, {0.9, 0.95, 0.5, 0.999, 1e-9, 1 - 1e-9, uniform(random)});
  }
  if (below(random, 3) == 0) rule.min_p = one_of(random, {0.05, 1.0, 1e-12, uniform(random)});
  return rule;
}

void add_edits(Bits& random, SampleCase& c, SampleRule& rule) {
  if (rule.kind == SampleRule::Kind::kNone) return;
  rule.log_probability = below(random, 3) == 0 ? 1 : 0;
  if (rule.log_probability != 0 || below(random, 2) == 0) return;
  rule.repetition = one_of(random, {1.0f, 1.1f, 1.8f, 0.5f});
  rule.presence = one_of(random, {0.0f, 0.7f, -1.0f});
  rule.frequency = one_of(random, {0.0f, 0.3f});
  rule.first_edit = static_cast<std::int32_t>(c.edits.size());
  std::int64_t id = below(random, 3);
  for (int i = 0; i < 700 && id < c.vocab; ++i) {
    c.edits.push_back(
        {static_cast<std::int32_t>(id), static_cast<float>(below(random, 4) - 1),
         one_of(random, {0.0f, 0.0f, 2.5f, -100.0f, -std::numeric_limits<float>::infinity()})});
    id += 1 + below(random, std::max<std::int64_t>(c.vocab / 300, 2));
  }
  rule.edits = static_cast<std::int32_t>(c.edits.size()) - rule.first_edit;
  std::shuffle(c.edits.begin() + rule.first_edit, c.edits.end(), random);
}

}  // namespace

SampleCase random_sample_case(Bits& random, std::int64_t vocab, std::int64_t rows) {
  SampleCase c;
  c.vocab = vocab;
  c.logits.resize(static_cast<std::size_t>(rows * vocab));
  for (std::int64_t r = 0; r < rows; ++r) {
    fill_row(random, c.logits.data() + r * vocab, vocab);
    SampleRule rule = random_rule(random, vocab);
    add_edits(random, c, rule);
    c.rules.push_back(rule);
  }
  return c;
}

}  // namespace bl::test
