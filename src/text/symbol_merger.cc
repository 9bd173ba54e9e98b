#include "text/symbol_merger.h"

#include <algorithm>

namespace bl {
namespace {

constexpr std::size_t kFew = 48;  // up to this many symbols, looking at all pairs beats a heap
constexpr std::int32_t kGone = -2;

}  // namespace

void SymbolMerger::merge(std::vector<std::int32_t>& symbols) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kFew) {
    merge_few(symbols);
  } else {
    merge_many(symbols);
  }
}

void SymbolMerger::merge_few(std::vector<std::int32_t>& symbols) {
  std::size_t count = symbols.size();
  pairs_.resize(count);
  for (std::size_t i = 0; i + 1 < count; ++i) pairs_[i] = look_up(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs_[i].rank < pairs_[best].rank) best = i;
    }
    if (pairs_[best].rank == MergeTable::kNoRank) break;
    symbols[best] = pairs_[best].merged;
    const auto at = [](std::size_t i) { return static_cast<std::ptrdiff_t>(i); };
    std::copy(symbols.begin() + at(best + 2), symbols.begin() + at(count),
              symbols.begin() + at(best + 1));
    std::copy(pairs_.begin() + at(best + 2), pairs_.begin() + at(count),
              pairs_.begin() + at(best + 1));
    --count;
    if (best > 0) pairs_[best - 1] = look_up(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pairs_[best] = look_up(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

void SymbolMerger::merge_many(std::vector<std::int32_t>& symbols) {
  const auto count = static_cast<std::int32_t>(symbols.size());
  const auto at = [](std::int32_t i) { return static_cast<std::size_t>(i); };
  next_.resize(symbols.size());
  previous_.resize(symbols.size());
  heap_.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    next_[at(i)] = i + 1 < count ? i + 1 : -1;
    previous_[at(i)] = i - 1;
    if (i + 1 == count) break;
    const auto pair = look_up(symbols[at(i)], symbols[at(i + 1)]);
    if (pair.rank != MergeTable::kNoRank) {
      heap_.push_back({pair.rank, static_cast<std::uint32_t>(i), pair.merged});
    }
  }
  std::make_heap(heap_.begin(), heap_.end());
  const auto offer = [&](std::int32_t left, std::int32_t right) {
    const auto pair = look_up(symbols[at(left)], symbols[at(right)]);
    if (pair.rank == MergeTable::kNoRank) return;
    heap_.push_back({pair.rank, static_cast<std::uint32_t>(left), pair.merged});
    std::push_heap(heap_.begin(), heap_.end());
  };
  while (!heap_.empty()) {
    const Candidate top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    const auto left = static_cast<std::int32_t>(top.position);
    if (symbols[at(left)] == kGone) continue;
    const std::int32_t right = next_[at(left)];
    // The pair may have changed since it was put on the heap.
    if (right < 0 || look_up(symbols[at(left)], symbols[at(right)]).merged != top.merged) continue;
    symbols[at(left)] = top.merged;
    symbols[at(right)] = kGone;
    const std::int32_t after = next_[at(right)];
    next_[at(left)] = after;
    if (after >= 0) {
      previous_[at(after)] = left;
      offer(left, after);
    }
    if (previous_[at(left)] >= 0) offer(previous_[at(left)], left);
  }
  std::size_t kept = 0;
  for (std::int32_t i = 0; i >= 0; i = next_[at(i)]) symbols[kept++] = symbols[at(i)];
  symbols.resize(kept);
}

}  // namespace bl
