#include <algorithm>
#include <cmath>

#include "sample/stages/logit_stages.h"

namespace bl {
namespace {

constexpr double kLargestPenalty = 1e6;

bool wanted(const SamplingParams& p) { return p.dry_multiplier > 0; }

// The text in reverse: at(0) is the newest token.
struct Backwards {
  std::span<const std::int32_t> tokens;
  std::int32_t at(std::size_t i) const { return tokens[tokens.size() - 1 - i]; }
  std::size_t size() const { return tokens.size(); }
};

bool contains(const std::vector<std::int32_t>& ids, std::int32_t id) {
  return std::binary_search(ids.begin(), ids.end(), id);
}

// Sets lengths[j], for j ≥ 1, to how many tokens from at(j) on equal those from at(0) on, at most
// `limit`: the Z-function of the reversed text (Gusfield 1997, section 1.3).
void match_lengths(const Backwards& text, std::size_t limit, std::vector<std::int32_t>& lengths) {
  const std::size_t size = text.size();
  lengths.resize(size);
  std::size_t begin = 0;  // the match that reaches furthest: [begin, end)
  std::size_t end = 0;
  for (std::size_t j = 1; j < size; ++j) {
    std::size_t length = 0;
    if (j < end) length = std::min(end - j, static_cast<std::size_t>(lengths[j - begin]));
    while (length < limit && j + length < size && text.at(length) == text.at(j + length)) ++length;
    lengths[j] = static_cast<std::int32_t>(length);
    if (j + length > end) {
      begin = j;
      end = j + length;
    }
  }
}

void apply(const SamplingParams& p, const SamplerState&, SampleRow& row) {
  Backwards text{row.args->history};
  if (p.dry_range > 0 && static_cast<std::uint64_t>(p.dry_range) < text.size()) {
    text.tokens = text.tokens.last(static_cast<std::size_t>(p.dry_range));
  }
  std::size_t limit = 0;  // no match extends past the newest breaker
  while (limit < text.size() && !contains(p.dry_breaker_tokens, text.at(limit))) ++limit;
  const auto allowed = static_cast<std::uint64_t>(p.dry_allowed_length);
  if (limit < allowed) return;
  match_lengths(text, limit, row.lengths);

  const std::size_t vocab = row.logits.size();
  const PerTokenUse use(row, vocab);
  for (std::size_t j = 1; j < text.size(); ++j) {
    const auto length = static_cast<float>(row.lengths[j]);
    if (static_cast<std::uint64_t>(row.lengths[j]) < allowed) continue;
    const auto next = static_cast<std::uint32_t>(text.at(j - 1));
    if (next >= vocab) continue;
    if (row.per_token[next] == 0.0f) row.touched.push_back(static_cast<std::int32_t>(next));
    row.per_token[next] = std::max(row.per_token[next], length);
  }
  if (row.touched.empty()) return;
  const std::span<float> logits = row.edit();
  for (const std::int32_t id : row.touched) {
    if (contains(p.dry_breaker_tokens, id)) continue;
    const float length = row.per_token[static_cast<std::size_t>(id)];
    const double growth =
        std::pow(p.dry_base, static_cast<double>(length) - static_cast<double>(allowed));
    logits[static_cast<std::size_t>(id)] -=
        static_cast<float>(std::min(p.dry_multiplier * growth, kLargestPenalty));
  }
}

}  // namespace

const SamplerStage kDryStage{"DRY", wanted, apply};

}  // namespace bl
