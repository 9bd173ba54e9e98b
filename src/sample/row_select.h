#pragma once
// Selections over a row that sort nothing but what lies at the cut.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sample/sample_row.h"

namespace bl {

// Calls fn(id, logit) for every logit above `cut`, ids ascending. fn may raise the cut.
template <class Fn>
void for_each_above(std::span<const float> row, const float& cut, Fn&& fn) {
  constexpr std::size_t kBlock = 64;
  constexpr std::size_t kWide = 16;
  std::size_t i = 0;
  for (; i + kBlock <= row.size(); i += kBlock) {
    const float* block = row.data() + i;
    const float bar = cut;
    std::array<std::uint32_t, kWide> above{};
    for (std::size_t g = 0; g < kBlock; g += kWide) {
      for (std::size_t j = 0; j < kWide; ++j) above[j] |= block[g + j] > bar ? 1u : 0u;
    }
    std::uint32_t any = 0;
    for (const std::uint32_t lane : above) any |= lane;
    if (any == 0) continue;
    for (std::size_t j = 0; j < kBlock; ++j) {
      if (block[j] > cut) fn(static_cast<std::int32_t>(i + j), block[j]);
    }
  }
  for (; i < row.size(); ++i) {
    if (row[i] > cut) fn(static_cast<std::int32_t>(i), row[i]);
  }
}

// The k largest logits (fewer if the rest is −∞), ties to low ids, in no order. Returns in `out`,
// whose capacity is scratch.
void select_top(std::span<const float> row, std::size_t k, std::vector<LogitEntry>& out);

// The last entry that stays when items are taken in order of (key, id) until their weights reach
// `wanted` > 0. Time linear in the items, of which there is one at least; reorders and drops some.
struct MassCut {
  std::uint32_t key;
  std::int32_t id;
  bool keeps(std::uint32_t other_key, std::int32_t other_id) const {
    return other_key < key || (other_key == key && other_id <= id);
  }
};
MassCut cut_by_mass(std::vector<Ranked>& items, double wanted);

// Sorts items in ascending order of ids by (key, id). `swap` is scratch.
void sort_ranked(std::vector<Ranked>& items, std::vector<Ranked>& swap);

// The bits of a float ≥ 0 order as the float does.
std::uint32_t rank_key(float value);

}  // namespace bl
