#include "sample/stages/gather.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "sample/exp_sum.h"
#include "sample/row_select.h"

namespace bl {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Mass of the tokens with scores above −kDepths[i], and of all.
constexpr std::array<float, 3> kDepths{3, 6, 10};
struct DepthMass {
  std::array<double, kDepths.size()> above{};
  double all = 0;
};

DepthMass measure(std::span<const float> row, float top, float inverse) {
  DepthMass mass;
  constexpr std::size_t kNarrow = 8;
  for (std::size_t begin = 0; begin < row.size(); begin += kRun) {
    const std::size_t end = std::min(begin + kRun, row.size());
    std::array<float, kNarrow> all{}, first{}, second{}, third{};
    std::size_t i = begin;
    const auto add = [&](float logit, std::size_t j) {
      const float score = (logit - top) * inverse;
      const float weight = fast_exp(score);
      all[j] += weight;
      first[j] += score > -kDepths[0] ? weight : 0.0f;
      second[j] += score > -kDepths[1] ? weight : 0.0f;
      third[j] += score > -kDepths[2] ? weight : 0.0f;
    };
    for (; i + kNarrow <= end; i += kNarrow) {
      for (std::size_t j = 0; j < kNarrow; ++j) add(row[i + j], j);
    }
    for (; i < end; ++i) add(row[i], 0);
    for (std::size_t j = 0; j < kNarrow; ++j) {
      mass.all += static_cast<double>(all[j]);
      mass.above[0] += static_cast<double>(first[j]);
      mass.above[1] += static_cast<double>(second[j]);
      mass.above[2] += static_cast<double>(third[j]);
    }
  }
  return mass;
}

void gather_top_k(const SamplingParams& params, const ScoreMap& score, SampleRow& row) {
  const auto k = static_cast<std::size_t>(params.top_k);
  select_top(row.logits, k, row.selected);
  constexpr std::size_t kFew = 4096;
  if (row.selected.size() <= kFew) {
    std::sort(row.selected.begin(), row.selected.end(),
              [](const LogitEntry& a, const LogitEntry& b) { return a.id < b.id; });
    for (const LogitEntry& entry : row.selected) {
      if (entry.logit >= row.floor) row.push(entry.id, score(entry.logit));
    }
    return;
  }
  // A pass over the row is cheaper than sorting many: the worst of the selected says which stay.
  const LogitEntry worst = *std::min_element(
      row.selected.begin(), row.selected.end(), [](const LogitEntry& a, const LogitEntry& b) {
        return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
      });
  const float cut = std::nextafter(std::max(worst.logit, row.floor), kMinusInfinity);
  for_each_above(row.logits, cut, [&](std::int32_t id, float logit) {
    if (logit > worst.logit || id <= worst.id) row.push(id, score(logit));
  });
}

// Only for a linear map and a row without floor.
void gather_likely(const SamplingParams& params, const ScoreMap& score, SampleRow& row) {
  // Weights below this are cut for certain. The factors cover rounding.
  double least = 0;
  double total = 0;
  if (params.top_p < 1 || params.top_a > 0) {
    const DepthMass mass = measure(row.logits, score.top(), score.inverse_temperature());
    total = mass.all;
    if (params.top_p < 1) {
      // Tokens below (1 − top_p) / vocab hold less than 1 − top_p together: the nucleus has none.
      least = (1 - params.top_p) * total / static_cast<double>(row.logits.size());
      for (std::size_t i = kDepths.size(); i-- > 0;) {
        if (mass.above[i] > params.top_p * total * (1 + 1e-5)) {
          least = std::max(least, std::exp(-static_cast<double>(kDepths[i])));
        }
      }
    } else {
      least = params.top_a / total;
    }
  }
  // min-p asks only for the top, but top-a must not miss mass that min-p takes away later.
  if (params.top_a == 0) least = std::max(least, params.min_p);
  const auto depth = std::log(0.999 * least) / static_cast<double>(score.inverse_temperature());
  const auto bar = static_cast<float>(static_cast<double>(score.top()) + std::min(depth, 0.0));
  const float cut = std::nextafter(bar, kMinusInfinity);
  for_each_above(row.logits, cut,
                 [&](std::int32_t id, float logit) { row.push(id, score(logit)); });
  row.weigh();
  if (total > 0) row.mass = total;
}

void gather_all(const ScoreMap& score, SampleRow& row) {
  const std::size_t vocab = row.logits.size();
  const float floor = std::max(row.floor, -std::numeric_limits<float>::max());
  row.ids.resize(vocab);
  row.scores.resize(vocab);
  constexpr std::size_t kBlock = 64;
  std::size_t kept = 0;
  for (std::size_t begin = 0; begin < vocab; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, vocab);
    std::uint32_t whole = 1;
    for (std::size_t i = begin; i < end; ++i) whole &= row.logits[i] >= floor ? 1u : 0u;
    if (whole != 0) {
      for (std::size_t i = begin; i < end; ++i) {
        row.ids[kept + i - begin] = static_cast<std::int32_t>(i);
        row.scores[kept + i - begin] = score(row.logits[i]);
      }
      kept += end - begin;
      continue;
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (!(row.logits[i] >= floor)) continue;
      row.ids[kept] = static_cast<std::int32_t>(i);
      row.scores[kept++] = score(row.logits[i]);
    }
  }
  row.ids.resize(kept);
  row.scores.resize(kept);
}

}  // namespace

ScoreMap::ScoreMap(const SamplingParams& params, float top)
    : top_(top),
      inverse_(params.temperature_last || params.dynamic_temperature()
                   ? 1.0f
                   : static_cast<float>(1 / params.temperature)),
      smooth_(params.smoothing_factor > 0),
      square_(static_cast<float>(-params.smoothing_factor * (3 - params.smoothing_curve) / 2)),
      cube_(static_cast<float>(params.smoothing_factor * (params.smoothing_curve - 1) / 2)) {}

void gather(const SamplingParams& params, SampleRow& row) {
  const ScoreMap score(params, row.top.value);
  row.clear();
  const bool early_cut = params.top_p < 1 || params.top_a > 0 || params.min_p > 0;
  if (params.top_k > 0 && static_cast<std::uint64_t>(params.top_k) < row.logits.size()) {
    gather_top_k(params, score, row);
  } else if (early_cut && score.is_linear() && row.floor == kMinusInfinity) {
    gather_likely(params, score, row);
    return;
  } else {
    gather_all(score, row);
  }
  row.weigh();
}

}  // namespace bl
