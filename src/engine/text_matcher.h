#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bl {

// Finds any of many texts in a stream of bytes: the automaton of Aho and Corasick (1975). A byte
// costs a look-up or two however many texts there are; memory is about 40 bytes a byte of text.
//
// Immutable, so that all answers to a request share one; where a stream stands is a State.
class TextMatcher {
 public:
  using State = std::int32_t;  // 0: at the beginning, and wherever nothing has begun

  // Throws kInvalidArgument where a text is empty.
  explicit TextMatcher(std::span<const std::string> texts);

  State next(State state, char byte) const;
  // Bytes of the longest text that ends here; 0: none does.
  std::size_t matched(State state) const { return node(state).matched; }
  // The longest end of the stream that begins one of the texts: its bytes, and how many they are.
  std::size_t open_bytes(State state) const { return node(state).depth; }
  std::string open_text(State state) const;

 private:
  struct Node {
    std::uint32_t depth = 0;
    std::uint32_t matched = 0;
    State parent = 0;
    State fallback = 0;  // the longest proper end that begins a text
    char byte = 0;       // between the parent and this
  };
  struct Slot {
    std::uint64_t key = 0;
    State child = 0;  // 0: free, since the beginning is nobody's child
  };
  const Node& node(State state) const { return nodes_[static_cast<std::size_t>(state)]; }
  std::size_t slot_of(State state, char byte) const;
  State child(State state, char byte) const { return slots_[slot_of(state, byte)].child; }
  State add(std::string_view text);
  void link();

  std::vector<Node> nodes_;
  std::vector<Slot> slots_;  // children by (node, byte); a power of two of them, open addressing
  std::array<State, 256> first_{};  // children of the beginning
};

}  // namespace bl
