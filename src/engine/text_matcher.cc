#include "engine/text_matcher.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "base/error.h"

namespace bl {

TextMatcher::TextMatcher(std::span<const std::string> texts) {
  std::size_t bytes = 0;
  for (const std::string& text : texts) {
    if (text.empty()) {
      fail(ErrorCode::kInvalidArgument, "a text to look for is empty, should have a character");
    }
    bytes += text.size();
  }
  slots_.resize(std::bit_ceil(2 * bytes + 1));
  nodes_.emplace_back();
  for (const std::string& text : texts) {
    Node& end = nodes_[static_cast<std::size_t>(add(text))];
    end.matched = end.depth;
  }
  nodes_.shrink_to_fit();
  link();
}

std::size_t TextMatcher::slot_of(State state, char byte) const {
  const std::uint64_t key =
      std::uint64_t{static_cast<std::uint32_t>(state)} << 8 | static_cast<unsigned char>(byte);
  const std::size_t mask = slots_.size() - 1;
  // Keys are often consecutive; the high bits of the product spread them.
  std::size_t at = (key * 0x9e3779b97f4a7c15u >> 32) & mask;
  while (slots_[at].child != 0 && slots_[at].key != key) at = (at + 1) & mask;
  return at;
}

TextMatcher::State TextMatcher::add(std::string_view text) {
  State state = 0;
  for (const char byte : text) {
    Slot& slot = slots_[slot_of(state, byte)];
    if (slot.child == 0) {
      slot.key =
          std::uint64_t{static_cast<std::uint32_t>(state)} << 8 | static_cast<unsigned char>(byte);
      slot.child = static_cast<State>(nodes_.size());
      nodes_.push_back({.depth = node(state).depth + 1, .parent = state, .byte = byte});
      if (state == 0) first_[static_cast<unsigned char>(byte)] = slot.child;
    }
    state = slot.child;
  }
  return state;
}

// Sets the fallbacks, of shallow nodes before the deeper ones that need them.
void TextMatcher::link() {
  std::vector<State> order(nodes_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<State>(i);
  std::stable_sort(order.begin(), order.end(),
                   [this](State a, State b) { return node(a).depth < node(b).depth; });
  for (const State state : order) {
    Node& at = nodes_[static_cast<std::size_t>(state)];
    if (at.depth > 1) at.fallback = next(node(at.parent).fallback, at.byte);
    if (at.matched == 0) at.matched = node(at.fallback).matched;
  }
}

TextMatcher::State TextMatcher::next(State state, char byte) const {
  while (state != 0) {
    if (const State to = child(state, byte); to != 0) return to;
    state = node(state).fallback;
  }
  return first_[static_cast<unsigned char>(byte)];
}

std::string TextMatcher::open_text(State state) const {
  std::string text(open_bytes(state), '\0');
  for (std::size_t i = text.size(); i > 0; --i) {
    text[i - 1] = node(state).byte;
    state = node(state).parent;
  }
  return text;
}

}  // namespace bl
