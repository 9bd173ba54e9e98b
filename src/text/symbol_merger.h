#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "text/merge_table.h"

namespace bl {

// Applies merges to a row of symbols: always the one with the lowest rank, and of equal ones the
// leftmost, until none applies. Takes O(n log n) and keeps its working memory between calls.
class SymbolMerger {
 public:
  explicit SymbolMerger(const MergeTable& merges) : merges_(merges) {}

  // `symbols` are ids and are replaced by the result. A negative symbol merges with nothing.
  void merge(std::vector<std::int32_t>& symbols);

 private:
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t position;
    std::int32_t merged;
    // The order is reversed, because the standard heap keeps its largest element on top.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  void merge_few(std::vector<std::int32_t>& symbols);
  void merge_many(std::vector<std::int32_t>& symbols);
  MergeTable::Merge look_up(std::int32_t left, std::int32_t right) const {
    return left < 0 || right < 0 ? MergeTable::Merge{} : merges_.find(left, right);
  }

  const MergeTable& merges_;
  std::vector<MergeTable::Merge> pairs_;
  std::vector<Candidate> heap_;
  std::vector<std::int32_t> next_;
  std::vector<std::int32_t> previous_;
};

}  // namespace bl
