#pragma once
// What the pre-tokenizers share: what becomes of the matches of a pattern in a piece of text.

#include <cstddef>
#include <vector>

#include "text/component_reader.h"
#include "text/pre_tokenizer.h"

namespace bl {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Field `key` of a component; `otherwise` where it is missing.
SplitBehavior read_behavior(const ComponentReader& reader, const char* key,
                            SplitBehavior otherwise);

// A stretch of a piece, either a match of the pattern or what lies between two matches.
struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_match = false;
};

// Joins or drops stretches, which cover the piece in order, as `behavior` says, and appends what
// remains to `out` as pieces.
void arrange(const PreTokens::Piece& piece, const std::vector<Stretch>& stretches,
             SplitBehavior behavior, std::vector<PreTokens::Piece>& out);

}  // namespace bl
