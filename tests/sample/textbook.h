#pragma once
// Every sampler by its definition: in double, sorting everything, sharing no code with src/sample.

#include <cstdint>
#include <vector>

#include "sample/pick_args.h"

namespace bl::test {

struct TextbookRow {
  std::vector<float> logits;
  std::vector<std::int32_t> history;
  std::vector<std::int32_t> end_tokens;
  std::vector<std::int32_t> barred;
  std::vector<std::uint32_t> mask;
  std::uint64_t position = 0;
  std::int64_t generated = 0;
  PickArgs args() const;
};

struct TextbookResult {
  std::vector<double> p;        // [vocab]; 0: cut
  std::vector<double> unaimed;  // the same before adaptive-p; empty without it
  // Some value lay so near a threshold that rounding decides which side it is on: nothing can be
  // said about this row.
  bool doubtful = false;
};

TextbookResult textbook(const TextbookRow& row, const SamplingParams& params,
                        const SamplerState& state);
inline TextbookResult textbook(const TextbookRow& row, const SamplingParams& params) {
  return textbook(row, params, SamplerState(params));
}

// The token whose stretch of the cumulative sum, in the order of ids, holds u; `doubtful` where u
// lies on a border. `p` of the result is that of the row.
std::int32_t textbook_draw(const TextbookResult& result, double u, bool& doubtful);

}  // namespace bl::test
