#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bl {

// Finds any of many texts in a stream of bytes: the automaton of Aho and Corasick (1975). A byte
// costs one or two look-ups, however many texts there are; memory is about 40 bytes per byte of
// text.
//
// Immutable, so that all answers to a request share one; a State says where a stream stands.
class TextMatcher {
 public:
  using State = std::int32_t;  // 0: no text has begun

  // Throws kInvalidArgument for an empty text.
  explicit TextMatcher(std::span<const std::string> texts);

  State next(State state, char byte) const;
  // The length in bytes of the longest text that ends here; 0: none does.
  std::size_t matched(State state) const { return node(state).matched; }
  // The longest suffix of the stream that is a prefix of one of the texts: its length and its
  // bytes.
  std::size_t open_bytes(State state) const { return node(state).depth; }
  std::string open_text(State state) const;

 private:
  struct Node {
    std::uint32_t depth = 0;
    std::uint32_t matched = 0;
    State parent = 0;
    State fallback = 0;  // the longest proper suffix that is a prefix of a text
    char byte = 0;       // the edge from the parent
  };
  struct Slot {
    std::uint64_t key = 0;
    State child = 0;  // 0: free, since the root is no child
  };
  const Node& node(State state) const { return nodes_[static_cast<std::size_t>(state)]; }
  std::size_t slot_of(State state, char byte) const;
  State child(State state, char byte) const { return slots_[slot_of(state, byte)].child; }
  State add(std::string_view text);
  void link();

  std::vector<Node> nodes_;
  std::vector<Slot> slots_;         // hash table of children by (node, byte), open addressing
  std::array<State, 256> first_{};  // children of the root
};

}  // namespace bl
