#pragma once
#include <cstdint>
#include <vector>

namespace bl {

// The merges of a byte-pair encoding, (left, right) → (rank, merged), as a hash table with open
// addressing.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = kNoRank;
    std::int32_t merged = -1;
  };
  static constexpr std::uint32_t kNoRank = 0xffffffffu;

  // Makes room for a number of merges.
  void reserve(std::size_t merges);
  // Adds a merge; ids must be ≥ 0. The lower its rank, the earlier a merge is applied. A pair that
  // is added again gets the new values.
  void add(std::int32_t left, std::int32_t right, Merge merge);

  // Returns the merge of a pair; its rank is kNoRank if there is none.
  Merge find(std::int32_t left, std::int32_t right) const {
    if (slots_.empty()) return {};
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = home(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kFree) return {};
    }
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree;
    Merge merge;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t home(std::uint64_t key) const {
    return static_cast<std::size_t>(key * 0x9e3779b97f4a7c15u >> shift_);
  }
  void grow(std::size_t slots);

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
  std::size_t mask_ = 0;
  unsigned shift_ = 64;
};

}  // namespace bl
