#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bl {

// A trie over bytes, built once. The children of a node are adjacent, so that a step is one search
// through a few bytes.
class ByteTrie {
 public:
  static constexpr int kRoot = 0;
  static constexpr int kNone = -1;

  ByteTrie() = default;
  // The last of several equal keys gives the value; empty keys are left out. Values must be ≥ 0.
  explicit ByteTrie(std::vector<std::pair<std::string_view, std::int32_t>> entries);

  bool empty() const { return labels_.empty(); }

  // Returns the child of `node` by `byte`, or kNone.
  int step(int node, char byte) const {
    const auto n = static_cast<std::size_t>(node);
    const std::uint32_t begin = children_[n];
    const std::uint32_t end = children_[n + 1];
    if (begin == end) return kNone;
    const void* hit = std::memchr(labels_.data() + begin, byte, end - begin);
    if (hit == nullptr) return kNone;
    return static_cast<int>(static_cast<const char*>(hit) - labels_.data()) + 1;
  }
  // Returns the value of the key that ends at `node`, or kNone.
  std::int32_t value(int node) const { return values_[static_cast<std::size_t>(node)]; }

  struct Match {
    std::size_t size = 0;  // 0 if nothing matches
    std::int32_t value = kNone;
  };
  // Returns the longest key that `text` begins with at `offset`.
  Match longest(std::string_view text, std::size_t offset) const;

 private:
  // Node 0 is the root, and node n + 1 is reached by the byte labels_[n]. The children of node n
  // are the nodes children_[n] + 1 to children_[n + 1].
  std::string labels_;
  std::vector<std::uint32_t> children_;
  std::vector<std::int32_t> values_;
};

}  // namespace bl
