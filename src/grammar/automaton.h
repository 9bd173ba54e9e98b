#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/code_points.h"

namespace bl {

// A deterministic finite automaton over numbers: code points for the text that a string means,
// bytes for what stands in the answer. State 0 is the start. A missing edge leads to failure.
struct Automaton {
  struct Edge {
    char32_t low;
    char32_t high;  // inclusive
    int to;

    bool operator==(const Edge&) const = default;
  };
  struct State {
    std::vector<Edge> edges{};  // sorted and disjoint
    bool accepts = false;
  };
  static constexpr int kNone = -1;

  // Returns the state behind `symbol`, or kNone.
  int step(int state, char32_t symbol) const;
  // Whether the automaton accepts this text, which must be valid UTF-8.
  bool matches(std::string_view text) const;
  // Whether it accepts no text at all. Automata from this room are trimmed, so that is quick.
  bool empty() const;

  std::vector<State> states{};
};

// Accepts every text.
Automaton any_text();
// Accepts texts of at least `fewest` and at most `most` code points; no upper bound if absent.
Automaton text_of_length(std::size_t fewest, std::optional<std::size_t> most);
// Accepts exactly these texts.
Automaton one_of_texts(const std::vector<std::string>& texts);

// How many states an automaton that is built from a schema may have, and how many product states
// may be visited to build it.
inline constexpr std::size_t kMostStates = 20000;

// Runs `parts` in parallel and accepts a text where `accepts` says so, given for each part whether
// it accepts. Throws kLimit with `what` in front beyond kMostStates.
Automaton combine(const std::vector<const Automaton*>& parts,
                  const std::function<bool(const std::vector<bool>&)>& accepts,
                  std::string_view what);

// Removes states that are unreachable or from which nothing is accepted, and merges equivalent
// ones.
Automaton trimmed(Automaton automaton);

// Returns all texts that the automaton accepts, or nothing if there are more than `most`.
std::optional<std::vector<std::string>> texts_of(const Automaton& automaton, std::size_t most);

}  // namespace bl
