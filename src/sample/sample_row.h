#pragma once
// The buffers in which one row of logits becomes a token.

#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "sample/log_probability.h"
#include "sample/pick_args.h"

namespace bl {

// An item to select by mass (row_select.h) or to sort.
struct Ranked {
  std::uint32_t key = 0;  // smaller keys come first
  float weight = 0;
  std::int32_t id = 0;
};

// The bits of a float ≥ 0, which order like the float.
inline std::uint32_t rank_key(float value) { return std::bit_cast<std::uint32_t>(value + 0.0f); }

struct LogitEntry {
  float logit = 0;
  std::int32_t id = 0;
};

// The data that the stages of a chain read and write, and scratch that is kept from row to row so
// that a choice allocates nothing. Chains that run one after another may share a SampleRow.
//
// First stages edit the logits, then the row is gathered into candidates, then stages cut and
// reweigh the candidates. Candidates are always in ascending order of ids, so that a draw does not
// depend on how they were selected.
struct SampleRow {
  const PickArgs* args = nullptr;
  std::uint64_t seed = 0;  // of the answer that is drawn

  // --- logits ---
  std::span<const float> logits;  // [vocab]; args->logits or `edited`
  TopLogit top;                   // the largest of `logits`; valid after the edits
  float floor = -std::numeric_limits<float>::infinity();  // logits below it are cut

  // Returns the logits for writing; the first call of a row copies them.
  std::span<float> edit();

  // --- candidates: three parallel arrays ---
  std::vector<std::int32_t> ids;  // ascending
  std::vector<float> scores;      // ln of the weight up to a constant; ≤ 0
  std::vector<float> weights;     // proportional to the probability
  double mass = 0;  // Σ weights; before top-p it includes tokens that top-p is certain to cut

  std::size_t size() const { return ids.size(); }
  void clear();
  void push(std::int32_t id, float score);
  // Sets weights = e^scores and mass = Σ weights. Requires scores ≤ 0.
  void weigh();
  // Shifts the scores so that the highest is 0, then weighs.
  void rebase();
  // Keeps the candidates for which keep(i) holds, in order, and sums their mass.
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
  // Sets `ranked` to the candidates, keyed by value(i) ≥ 0.
  template <class Value>
  void rank(Value&& value) {
    ranked.resize(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ranked[i] = {rank_key(value(i)), weights[i], ids[i]};
    }
  }
  // Entropy of the candidates, −Σ p ln p, in nats.
  double entropy() const;

  // (id, probability) before adaptive-p, in ascending order of ids; set by that stage.
  std::vector<std::pair<std::int32_t, double>> unaimed;

  // --- scratch of stages ---
  std::vector<float> edited;
  std::vector<LogitEntry> selected;
  std::vector<Ranked> ranked;
  std::vector<Ranked> ranked_swap;
  std::vector<std::int32_t> touched;
  std::vector<float> strengths;
  std::vector<float> per_token;       // [vocab]; zero between stages, see PerTokenUse
  std::vector<std::int32_t> lengths;  // match lengths of DRY, one for each position
  std::vector<double> block_mass;     // mass of each run of kRun logits
};

// A stage's use of SampleRow::per_token: on exit, also by an exception, the entries of all
// `touched` tokens are zeroed. Add a token to `touched` before setting its entry.
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
