#pragma once
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "grammar/code_points.h"

namespace bl {

// A regular expression as a tree.
struct PatternNode {
  enum class Kind {
    kEmpty,     // matches the empty text
    kSet,       // one of `points`
    kBegin,     // ^
    kEnd,       // $
    kSequence,  // all `parts`, one after the other
    kChoice,    // one of `parts`
    kRepeat,    // parts[0], `fewest` to `most` times
    kAhead,     // (?=parts[0])
    kNotAhead,  // (?!parts[0])
  };
  Kind kind = Kind::kEmpty;
  CodePoints points{};
  std::vector<PatternNode> parts{};
  std::size_t fewest = 0;
  std::optional<std::size_t> most{};
  std::size_t at = 0;  // offset in the text, in bytes
};

// Parses a regular expression of ECMA-262 (a subset: no back references, no looking behind, no word
// boundaries, no \p). What Python writes differently is understood where it does not contradict:
// (?P<name>…), \A, \Z and a leading (?i). `regex` must be valid UTF-8. Throws kInvalidArgument with
// a phrase that follows "the pattern", such as "has an unclosed ( at offset 3".
PatternNode parse_pattern(std::string_view regex);

}  // namespace bl
