#pragma once
// The room in which one row of logits becomes a token.

#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "sample/log_probability.h"
#include "sample/pick_args.h"

namespace bl {

// An item of a selection by mass (row_select.h) or of a sort.
struct Ranked {
  std::uint32_t key = 0;  // small ones come first
  float weight = 0;
  std::int32_t id = 0;
};

// The bits of a float ≥ 0, which order as the float does.
inline std::uint32_t rank_key(float value) { return std::bit_cast<std::uint32_t>(value + 0.0f); }

struct LogitEntry {
  float logit = 0;
  std::int32_t id = 0;
};

// What the stages of a chain read and write, and scratch that is kept from row to row so that a
// choice allocates nothing. Several chains that run one after another may share one.
//
// First the stages edit logits; then the row is gathered into candidates; then stages cut and
// reweigh these. Candidates are always in ascending order of ids, so that a draw from them does not
// depend on the way in which they were selected.
struct SampleRow {
  const PickArgs* args = nullptr;
  std::uint64_t seed = 0;  // of the answer's draws

  // --- logits ---
  std::span<const float> logits;                          // [vocab], args->logits or `edited`
  TopLogit top;                                           // of `logits`, valid after the edits
  float floor = -std::numeric_limits<float>::infinity();  // logits below it are cut

  // The logits to write to; the first call copies them.
  std::span<float> edit();

  // --- candidates: one entry each in all three ---
  std::vector<std::int32_t> ids;  // ascending
  std::vector<float> scores;      // ln of the weight up to a constant; at most 0
  std::vector<float> weights;     // ∝ probability
  double mass = 0;                // Σ weights; before top-p, also of what cannot survive it

  std::size_t size() const { return ids.size(); }
  void clear();
  void push(std::int32_t id, float score);
  // weights = e^scores, mass = Σ weights. Requires scores ≤ 0.
  void weigh();
  // Makes the highest score 0, then weighs.
  void rebase();
  // Keeps the entries for which keep(i) holds, in order, and sums their mass.
  template <class Keep>
  void filter(Keep&& keep) {
    std::size_t kept = 0;
    mass = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool stays = keep(i);
      ids[kept] = ids[i];
      scores[kept] = scores[i];
      weights[kept] = weights[i];
      mass += stays ? static_cast<double>(weights[i]) : 0.0;
      kept += stays ? 1 : 0;
    }
    ids.resize(kept);
    scores.resize(kept);
    weights.resize(kept);
  }
  // ranked = the candidates, keyed by value(i) ≥ 0.
  template <class Value>
  void rank(Value&& value) {
    ranked.resize(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ranked[i] = {rank_key(value(i)), weights[i], ids[i]};
    }
  }
  // −Σ p ln p in nats.
  double entropy() const;

  // Probabilities before adaptive-p, in the order of ids, where that stage has run.
  std::vector<std::pair<std::int32_t, double>> unaimed;

  // --- scratch of stages ---
  std::vector<float> edited;
  std::vector<LogitEntry> selected;
  std::vector<Ranked> ranked;
  std::vector<Ranked> ranked_swap;
  std::vector<std::int32_t> touched;
  std::vector<float> strengths;
  std::vector<float> per_token;       // [vocab], zero between stages
  std::vector<std::int32_t> lengths;  // of matches, one a position
  std::vector<double> block_mass;
};

// per_token of a stage: what it has put there is zero again afterwards, whatever is thrown. A token
// is `touched` before it gets a value.
class PerTokenUse {
 public:
  PerTokenUse(SampleRow& row, std::size_t vocab) : row_(row) {
    row_.touched.clear();
    if (row_.per_token.size() < vocab) row_.per_token.resize(vocab, 0.0f);
  }
  ~PerTokenUse() {
    for (const std::int32_t id : row_.touched) row_.per_token[static_cast<std::size_t>(id)] = 0.0f;
  }
  PerTokenUse(const PerTokenUse&) = delete;
  PerTokenUse& operator=(const PerTokenUse&) = delete;

 private:
  SampleRow& row_;
};

}  // namespace bl
