#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/conversion_source.h"
#include "convert/weight_folds.h"

namespace bl {

// Blocks that are coarse in a trial, and tokens of rows held out that the outputs are compared at.
inline constexpr std::size_t kTrialBlocks = 5;
inline constexpr std::int64_t kTrialTokens = 1024;

// What a trial says about one way to fold.
struct TriedFolds {
  FoldSet kinds;
  double kl = 0.0;  // mean D(original ‖ model whose trial blocks are coarse), in nats per token
  // The standard error of what `kl` differs by from that of no folds, over the same positions.
  double difference_error = 0.0;
};

struct FoldChoice {
  FoldSet kept;
  std::vector<TriedFolds> tried = {};  // none of them first; empty: nothing was tried
  double seconds = 0.0;                // that the trial took
};

Json to_json(const FoldChoice& choice);
// Throws kInvalidFile for other JSON. `what` names the file.
FoldChoice fold_choice_from_json(const Json& json, const std::string& what);

// A line that says what was tried and kept; empty where nothing was tried or folded.
std::string to_text(const FoldChoice& folds);

struct FoldTrialArgs {
  const ConversionJob& job;
  ModelLoader& loader;        // of the model without folds
  std::int64_t rows = 0;      // of the calibration that roundings are fitted to, from the front
  std::vector<FoldSet> sets;  // to try beside none; each must be possible
  // Called with blocks done and in all; may throw to interrupt.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

// Tries folds: rounds a few blocks, spread over the model, with a coarse mix of widths, and
// compares what the model says on rows held out. Keeps the set with the least KL divergence, if it
// is below that of no folds by more than its standard error and a tenth. A set of several kinds is
// tried, in a second pass, if one of its kinds gained something by itself. One block is in memory
// at a time, and hidden states of one variant of the model per set travel through the blocks.
FoldChoice try_folds(const FoldTrialArgs& args);

}  // namespace bl
