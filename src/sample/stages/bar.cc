#include <algorithm>
#include <limits>

#include "sample/stages/logit_stages.h"

namespace bl {
namespace {

constexpr float kBarred = -std::numeric_limits<float>::infinity();

// PickArgs can bar tokens too, so the stage always runs; it costs nothing if nothing is barred.
bool wanted(const SamplingParams&) { return true; }

void bar(std::span<float> logits, std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) {
    const auto at = static_cast<std::uint32_t>(id);
    if (at < logits.size()) logits[at] = kBarred;
  }
}

void keep_allowed(std::span<float> logits, std::span<const std::int32_t> ids, SampleRow& row) {
  std::vector<float>& kept = row.strengths;
  kept.clear();
  for (const std::int32_t id : ids) {
    const auto at = static_cast<std::size_t>(id);
    kept.push_back(at < logits.size() ? logits[at] : kBarred);
  }
  std::fill(logits.begin(), logits.end(), kBarred);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto at = static_cast<std::size_t>(ids[i]);
    if (at < logits.size()) logits[at] = kept[i];
  }
}

void keep_masked(std::span<float> logits, std::span<const std::uint32_t> mask) {
  constexpr std::size_t kBits = 32;
  for (std::size_t begin = 0; begin < logits.size(); begin += kBits) {
    const std::uint32_t word = begin / kBits < mask.size() ? mask[begin / kBits] : 0;
    if (word == ~std::uint32_t{0}) continue;
    const std::span<float> part = logits.subspan(begin, std::min(kBits, logits.size() - begin));
    if (word == 0) {  // most words are all zeros or all ones
      std::fill(part.begin(), part.end(), kBarred);
      continue;
    }
    for (std::size_t i = 0; i < part.size(); ++i) {
      if ((word >> i & 1) == 0) part[i] = kBarred;
    }
  }
}

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  const PickArgs& args = *row.args;
  const bool too_short = args.generated < p.min_tokens;
  const bool no_end = (too_short || p.ban_end_tokens) && !args.end_tokens.empty();
  const bool no_stop = too_short && !p.stop_tokens.empty();
  if (!no_end && !no_stop && p.banned_tokens.empty() && p.allowed_tokens.empty() &&
      args.barred.empty() && args.mask.empty()) {
    return;
  }
  const std::span<float> logits = row.edit();
  if (!p.allowed_tokens.empty()) keep_allowed(logits, p.allowed_tokens, row);
  if (!args.mask.empty()) keep_masked(logits, args.mask);
  bar(logits, p.banned_tokens);
  bar(logits, args.barred);
  if (no_end) bar(logits, args.end_tokens);
  if (no_stop) bar(logits, p.stop_tokens);
}

}  // namespace

const SamplerStage kBarStage{"barred tokens", wanted, apply};

}  // namespace bl
