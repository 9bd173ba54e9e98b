#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace bl {

// How often each token stands among the last ones of a text, from step to step: what it costs is
// what has changed since it was asked last (and comparing the rest), not the text's length. Texts
// may have changed in any way.
class TokenCounts {
 public:
  struct Count {
    std::int32_t id;
    std::int32_t count;
    friend bool operator==(const Count&, const Count&) = default;
  };
  // Of the last `range` ids of `text`, of all where it is negative: in the order of ids, each once.
  // Valid until the next call. Throws bad_alloc; the next call is as right as any.
  std::span<const Count> of(std::span<const std::int32_t> text, std::int64_t range);

 private:
  void count_anew();
  void add(std::int32_t id, std::int32_t change);

  std::vector<std::int32_t> ids_;  // that have been counted: the text's from begin_ on
  std::size_t begin_ = 0;
  bool is_whole_ = false;  // counts_ are those of ids_
  std::vector<Count> counts_;
};

}  // namespace bl
