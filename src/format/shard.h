#pragma once
// Parts of a linear for devices that share its work (tensor parallelism), and which features each
// part holds.

#include <cstdint>
#include <vector>

#include "format/gather_array.h"
#include "format/weight_matrix.h"

namespace bl {

enum class ShardRule : std::uint8_t {
  kReplicate,  // every device holds all of it
  kSplitOut,   // some output features (columns) each: the results lie side by side
  kSplitIn,    // some input features (rows) each: the results are summed
};

// Part `index` of `count`.
struct Share {
  int index = 0;
  int count = 1;
};

// What one device holds of a linear.
struct MatrixCut {
  ShardRule rule = ShardRule::kReplicate;
  std::vector<std::int32_t> features;  // outputs or inputs of the whole; empty with kReplicate
};

// The outputs in [0, out) that a share holds, nearly equally many each: neighbours, in multiples of
// 32 where there are enough of them (always for EXL2). Where an EXL2 matrix stores columns behind
// `out` as padding, the last share may contain some of these, so that it can be cut. Throws
// kUnsupported, naming the linear, where there are fewer parts than shares.
std::vector<std::int32_t> output_share(const WeightMatrix& matrix, std::int64_t out, Share share);

// The input channels that a share holds, such that select_inputs() gives exactly them. Dense and
// GPTQ: neighbours, in multiples of 32 where there are enough, else of what the format can give.
// EXL2, whose storage rows are a permutation of the channels: whole groups in turns, so that every
// share gets about as many rows of each width (32-row runs in turns where there are fewer groups
// than shares). They are listed in storage order, so the part needs no permutation. Throws as
// above.
std::vector<std::int32_t> input_share(const WeightMatrix& matrix, Share share);

// Throws kUnsupported as select_outputs() and select_inputs() do.
WeightMatrix cut_matrix(const WeightMatrix& matrix, const MatrixCut& cut,
                        CodeCopy codes = CodeCopy::kCopied);

}  // namespace bl
