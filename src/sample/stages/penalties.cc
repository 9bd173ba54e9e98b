#include <algorithm>
#include <limits>

#include "sample/stages/logit_stages.h"

namespace bl {
namespace {

bool wanted(const SamplingParams& p) {
  const bool any = p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
  return any && (p.penalty_range != 0 || p.repetition_decay != 0);
}

// In row.per_token: the token occurred, but nowhere that presence and frequency penalties count.
constexpr float kRepeatedOnly = -1;

// Fills row.touched with the tokens that occurred, row.strengths with the strength of each one's
// newest occurrence, and row.per_token with the sums over all occurrences that presence and
// frequency penalties count, or kRepeatedOnly.
void count_occurrences(const SamplingParams& p, SampleRow& row) {
  const std::span<const std::int32_t> history = row.args->history;
  const auto size = static_cast<std::int64_t>(history.size());
  const std::int64_t full = p.penalty_range < 0 ? size : std::min(size, p.penalty_range);
  const std::int64_t counted = p.penalize_prompt ? size : row.args->generated;
  const std::int64_t most = p.repetition_penalty == 1 ? std::min(size, counted) : size;
  const std::int64_t reach = std::min(most, full + std::min(size, p.repetition_decay));
  const std::size_t vocab = row.logits.size();
  row.strengths.clear();
  const auto slope = 1.0f / static_cast<float>(p.repetition_decay + 1);
  for (std::int64_t d = 0; d < reach; ++d) {
    const auto id = static_cast<std::uint32_t>(history[static_cast<std::size_t>(size - 1 - d)]);
    if (id >= vocab) continue;
    const float strength =
        d < full ? 1.0f : static_cast<float>(full + p.repetition_decay - d) * slope;
    if (row.per_token[id] == 0.0f) {
      row.touched.push_back(static_cast<std::int32_t>(id));
      row.strengths.push_back(strength);
    }
    if (d < counted) {
      row.per_token[id] += strength;
    } else if (row.per_token[id] == 0.0f) {
      row.per_token[id] = kRepeatedOnly;
    }
  }
}

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  const PerTokenUse use(row, row.logits.size());
  count_occurrences(p, row);
  if (row.touched.empty()) return;
  constexpr float kLargest = std::numeric_limits<float>::max();
  const std::span<float> logits = row.edit();
  const auto over = static_cast<float>(p.repetition_penalty - 1);
  const auto presence = static_cast<float>(p.presence_penalty);
  const auto frequency = static_cast<float>(p.frequency_penalty);
  for (std::size_t i = 0; i < row.touched.size(); ++i) {
    const auto id = static_cast<std::size_t>(row.touched[i]);
    const float factor = 1 + over * row.strengths[i];
    const float logit = logits[id];
    const float repeated = logit > 0 ? logit / factor : logit * factor;
    const float count = row.per_token[id];
    const float penalized =
        count > 0 ? repeated - presence * row.strengths[i] - frequency * count : repeated;
    logits[id] = std::min(penalized, kLargest);
  }
}

}  // namespace

const SamplerStage kPenaltyStage{"penalties", wanted, apply};

}  // namespace bl
