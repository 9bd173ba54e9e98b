#include "text/split_pieces.h"

#include <algorithm>

namespace bl {
namespace {

void put(const PreTokens::Piece& piece, std::size_t begin, std::size_t end,
         std::vector<PreTokens::Piece>& out) {
  if (begin < end) out.push_back({begin, end, piece.at_origin && begin == piece.begin});
}

// A match joins the stretch before it, unless that is a match too. `stretches` are in reading order
// for "merged with previous", reversed for "merged with next".
template <class Iterator, class Extend>
std::vector<Stretch> merged(Iterator first, Iterator last, Extend extend) {
  std::vector<Stretch> out;
  bool previous_is_match = false;
  for (; first != last; ++first) {
    if (first->is_match && !previous_is_match && !out.empty()) {
      extend(out.back(), *first);
    } else {
      out.push_back(*first);
    }
    previous_is_match = first->is_match;
  }
  return out;
}

}  // namespace

SplitBehavior read_behavior(const ComponentReader& reader, const char* key,
                            SplitBehavior otherwise) {
  if (!reader.has(key)) return otherwise;
  const std::string name = reader.string(key);
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  reader.wrong(key, "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

void arrange(const PreTokens::Piece& piece, const std::vector<Stretch>& stretches,
             SplitBehavior behavior, std::vector<PreTokens::Piece>& out) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Stretch& s : stretches) {
        if (!s.is_match) put(piece, s.begin, s.end, out);
      }
      return;
    case SplitBehavior::kIsolated:
      for (const Stretch& s : stretches) put(piece, s.begin, s.end, out);
      return;
    case SplitBehavior::kContiguous: {
      for (std::size_t i = 0; i < stretches.size();) {
        std::size_t j = i + 1;
        while (j < stretches.size() && stretches[j].is_match == stretches[i].is_match) ++j;
        put(piece, stretches[i].begin, stretches[j - 1].end, out);
        i = j;
      }
      return;
    }
    case SplitBehavior::kMergedWithPrevious:
      for (const Stretch& s : merged(stretches.begin(), stretches.end(),
                                     [](Stretch&to, const Stretch&s) { to.end = s.end; })) {
        put(piece, s.begin, s.end, out);
      }
      return;
    case SplitBehavior::kMergedWithNext: {
      auto joined = merged(stretches.rbegin(), stretches.rend(),
                           [](Stretch& to, const Stretch& s) { to.begin = s.begin; });
      std::reverse(joined.begin(), joined.end());
      for (const Stretch& s : joined) put(piece, s.begin, s.end, out);
      return;
    }
  }
}

}  // namespace bl
