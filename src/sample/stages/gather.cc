#include "sample/stages/gather.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sample/exp_sum.h"
#include "sample/row_select.h"

namespace bl {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void gather_top_k(const GatherRules& rules, const ScoreMap& score, SampleRow& row) {
  const auto k = static_cast<std::size_t>(rules.top_k);
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
  // Sorting many entries costs more than another pass over the row, which keeps all that are not
  // below the worst selected one.
  const LogitEntry worst = *std::min_element(
      row.selected.begin(), row.selected.end(), [](const LogitEntry& a, const LogitEntry& b) {
        return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
      });
  const float cut = std::nextafter(std::max(worst.logit, row.floor), kMinusInfinity);
  for_each_above(row.logits, cut, [&](std::int32_t id, float logit) {
    if (logit > worst.logit || id <= worst.id) row.push(id, score(logit));
  });
}

// Collects all logits above `cut`. Within a block it does not branch on each logit, because the
// branches would be mispredicted.
void collect_above(float cut, const ScoreMap& score, SampleRow& row) {
  const RowKernels& kernels = row_kernels();
  const float* const begin = row.logits.data();
  const float* const end = begin + row.logits.size();
  const float* const whole = end - row.logits.size() % kBlock;
  std::size_t kept = 0;
  const auto collect = [&](const float* from, const float* to) {
    constexpr std::size_t kStep = 4096;
    if (row.ids.size() < kept + kBlock) {
      row.ids.resize(kept + kStep);
      row.scores.resize(kept + kStep);
    }
    std::int32_t* const ids = row.ids.data();
    float* const logits = row.scores.data();
    std::size_t at = kept;
    for (; from != to; ++from) {
      const float logit = *from;
      ids[at] = static_cast<std::int32_t>(from - begin);
      logits[at] = logit;
      at += logit > cut ? 1 : 0;
    }
    kept = at;
  };
  const float* block = begin;
  while ((block = kernels.block_above(block, whole, cut)) != whole) {
    collect(block, block + kBlock);
    block += kBlock;
  }
  collect(whole, end);
  row.ids.resize(kept);
  row.scores.resize(kept);
  for (float& x : row.scores) x = score(x);
}

void collect_from_score(double least, const ScoreMap& score, SampleRow& row) {
  const float floor = std::nextafter(row.floor, kMinusInfinity);
  collect_above(std::max(score.logit_below(least), floor), score, row);
  row.weigh();
}

// Collects a superset of the nucleus, or of what min-p would leave of it. row.mass covers the whole
// row.
void gather_nucleus(const GatherRules& rules, const ScoreMap& score, SampleRow& row) {
  const double total = exp_sum(row.logits, score.formula());
  // With top-a on, tokens below min_p are collected too: top-a comes first and needs their mass.
  const double share = rules.top_a == 0 ? rules.min_p : 0;
  // Tokens with p below (1 − top_p) / vocab sum to less than 1 − top_p, so none is in the nucleus.
  const double least =
      std::max((1 - rules.top_p) * total / static_cast<double>(row.logits.size()), share);
  const double last_depth = -std::log(0.999 * least);
  for (const double depth : {3.0, 6.0, 10.0, last_depth}) {
    collect_from_score(-std::min(depth, last_depth), score, row);
    if (depth >= last_depth || row.mass > rules.top_p * total * (1 + 1e-5)) break;
  }
  row.mass = total;
}

// Collects everything that top-a and min-p might keep.
void gather_likely(const GatherRules& rules, const ScoreMap& score, SampleRow& row) {
  const double total = rules.top_a > 0 ? exp_sum(row.logits, score.formula()) : 0;
  const double least = rules.top_a > 0 ? rules.top_a / total : rules.min_p;
  collect_from_score(std::log(0.999 * least), score, row);
  if (total > 0) row.mass = total;
}

void gather_all(const ScoreMap& score, SampleRow& row) {
  const std::size_t vocab = row.logits.size();
  const float floor = std::max(row.floor, -std::numeric_limits<float>::max());
  row.ids.resize(vocab);
  row.scores.resize(vocab);
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

ScoreMap::ScoreMap(const GatherRules& rules, const SampleRow& row)
    : formula_{
          .top = row.top.value,
          .inverse = static_cast<float>(1 / rules.temperature),
          .smooth = rules.smoothing_factor > 0,
          .square = static_cast<float>(-rules.smoothing_factor * (3 - rules.smoothing_curve) / 2),
          .cube = static_cast<float>(rules.smoothing_factor * (rules.smoothing_curve - 1) / 2),
          .floor = row.floor} {}

float ScoreMap::logit_below(double score) const {
  const double wanted = std::min(score, 0.0);
  const auto top = static_cast<double>(formula_.top);
  double x = wanted / static_cast<double>(formula_.inverse);
  if (formula_.smooth) {
    // The score decreases with the distance from the top, so bisect.
    double low = static_cast<double>(kDeepest);
    double high = 0;
    for (int i = 0; i < 64; ++i) {
      const double middle = (low + high) / 2;
      const double value =
          middle * middle *
          (static_cast<double>(formula_.square) + static_cast<double>(formula_.cube) * middle) *
          static_cast<double>(formula_.inverse);
      (value < wanted ? low : high) = middle;
    }
    if (low == static_cast<double>(kDeepest)) return kMinusInfinity;
    x = low;
  }
  // Go one ulp lower, so that rounding cannot exclude a logit on the border.
  return std::nextafter(static_cast<float>(top + x), kMinusInfinity);
}

void gather(const GatherRules& rules, SampleRow& row) {
  const ScoreMap score(rules, row);
  row.clear();
  if (rules.top_k > 0 && static_cast<std::uint64_t>(rules.top_k) < row.logits.size()) {
    gather_top_k(rules, score, row);
  } else if (rules.top_p < 1) {
    gather_nucleus(rules, score, row);
    return;
  } else if (rules.top_a > 0 || rules.min_p > 0) {
    gather_likely(rules, score, row);
    return;
  } else {
    gather_all(score, row);
  }
  row.weigh();
}

}  // namespace bl
