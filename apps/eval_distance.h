#pragma once
// How far a model is from another one on rows of text.

#include "base/json.h"
#include "eval_rows.h"

namespace bl {

// The sums of a comparison.
struct Distance {
  double kld = 0;
  std::int64_t same_top = 0;
  std::int64_t positions = 0;
  Surprise surprise;
  Surprise base_surprise;

  void add(const StepLogits& base, const StepLogits& other, EvalThreads& threads);
  void add(const Distance& other);
  double mean_kld() const { return kld / static_cast<double>(positions); }
  double top_share() const {
    return static_cast<double>(same_top) / static_cast<double>(positions);
  }
  Json json() const;
};

struct ModelPair {
  ModelSession& base;
  ModelSession& other;
  AdapterMix adapters = {};  // of `other`
};

// The distance on each row. Shows its progress. Throws kInvalidArgument where the vocabularies
// differ, and kCancelled where it is interrupted.
std::vector<Distance> distances_of(const ModelPair& pair, const EvalRows& rows);

Distance sum_of(const std::vector<Distance>& rows);

}  // namespace bl
