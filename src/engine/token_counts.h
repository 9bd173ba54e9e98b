#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace bl {

// Counts how often each token occurs among the last ones of a text, from step to step. A call costs
// as much as has changed since the last one, and comparing the rest; the text may have changed in
// any way.
//
// Invariant: unless a call has thrown, the counts are those of the ids remembered.
class TokenCounts {
 public:
  struct Count {
    std::int32_t id;
    std::int32_t count;
    friend bool operator==(const Count&, const Count&) = default;
  };
  // The counts of the last `range` ids of `text`, or of all where `range` is negative, sorted by
  // id. Valid until the next call. Throws bad_alloc, after which the next call counts anew.
  std::span<const Count> of(std::span<const std::int32_t> text, std::int64_t range);

 private:
  void count_anew();
  void add(std::int32_t id, std::int32_t change);

  std::vector<std::int32_t> ids_;  // the ids that are counted: the text's from begin_ on
  std::size_t begin_ = 0;
  bool is_whole_ = false;  // whether counts_ belong to ids_
  std::vector<Count> counts_;
};

// The counts that the penalties of one answer need, kept from step to step.
struct PenaltyCounts {
  TokenCounts text;  // of the ids within the penalties' range
  TokenCounts
      answer;  // of the answer's among them, where the repetition penalty alone counts others
};

}  // namespace bl
