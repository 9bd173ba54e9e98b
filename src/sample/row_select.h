#pragma once
// Selections from a row that sort only the part around the cut.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sample/row_kernels.h"
#include "sample/sample_row.h"

namespace bl {

// Calls fn(id, logit) for every logit above `cut`, in ascending order of ids. fn may raise the cut.
template <class Fn>
void for_each_above(std::span<const float> row, const float& cut, Fn&& fn) {
  const RowKernels& kernels = row_kernels();
  const float* const begin = row.data();
  const float* const whole = begin + row.size() / kBlock * kBlock;
  const auto visit = [&](const float* from, const float* to) {
    for (; from != to; ++from) {
      if (*from > cut) fn(static_cast<std::int32_t>(from - begin), *from);
    }
  };
  const float* block = begin;
  while ((block = kernels.block_above(block, whole, cut)) != whole) {
    visit(block, block + kBlock);
    block += kBlock;
  }
  visit(whole, begin + row.size());
}

// Puts the k largest logits into `out`, in no order; ties go to low ids. There are fewer than k if
// the rest is −∞.
void select_top(std::span<const float> row, std::size_t k, std::vector<LogitEntry>& out);

// The last item that is kept when items are taken in order of (key, id) until their weights reach
// `wanted` > 0.
struct MassCut {
  std::uint32_t key;
  std::int32_t id;
  bool keeps(std::uint32_t other_key, std::int32_t other_id) const {
    // Without a branch, because it would be mispredicted half of the time.
    return static_cast<int>(other_key < key) |
           (static_cast<int>(other_key == key) & static_cast<int>(other_id <= id));
  }
};
// Finds the cut in linear time. `items` must not be empty; they are reordered, and some are
// overwritten.
MassCut cut_by_mass(std::vector<Ranked>& items, double wanted);

// Sorts items, given in ascending order of ids, by (key, id). `swap` is scratch.
void sort_ranked(std::vector<Ranked>& items, std::vector<Ranked>& swap);

}  // namespace bl
