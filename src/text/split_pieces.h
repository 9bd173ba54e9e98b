#pragma once
// Cuts a piece of text at the matches of a pattern; the pre-tokenizers share it.

#include <cstddef>
#include <vector>

#include "text/component_reader.h"
#include "text/pre_tokenizer.h"

namespace bl {

// What becomes of a match: it is dropped, is a piece of its own, or joins its neighbour or other
// adjacent matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Reads field `key` of a component; returns `otherwise` if it is missing.
SplitBehavior read_behavior(const ComponentReader& reader, const char* key,
                            SplitBehavior otherwise);

// A stretch of a piece: either a match of the pattern, or the text between two matches.
struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_match = false;
};

// Joins or drops stretches as `behavior` says and appends the result to `out` as pieces. The
// stretches cover the piece in order.
void arrange(const PreTokens::Piece& piece, const std::vector<Stretch>& stretches,
             SplitBehavior behavior, std::vector<PreTokens::Piece>& out);

}  // namespace bl
