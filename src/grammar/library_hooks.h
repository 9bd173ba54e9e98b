#pragma once
// Functions for the grammar library, whose sources are compiled with this header included;
// tools/fetch_xgrammar patches the calls in. They let it run automata of our own (RuleWriter
// writes them), which it neither parses as regular expressions nor unrolls: a rule whose body is
// Regex("\x01…") is such an automaton.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace bl {

inline constexpr char kAutomatonMark = '\x01';

inline bool is_automaton(std::string_view regex) {
  return !regex.empty() && regex[0] == kAutomatonMark;
}

// A number of characters that stands for "without end".
inline constexpr std::uint32_t kEndless = 0xffffff;

// Reads "\x01" and the states, each as [!][@SHORTEST-LONGEST,]{LOW-HIGH>TO,}; with hexadecimal
// numbers; `!` accepts. Calls add_state() for every state, then add_end(state),
// add_counts(state, shortest, longest) and add_edge(from, low, high, to). The first state is the
// start and may not accept. Throws std::invalid_argument.
template <class AddState, class AddEdge, class AddEnd, class AddCounts>
void read_automaton(std::string_view text, AddState add_state, AddEdge add_edge, AddEnd add_end,
                    AddCounts add_counts) {
  const auto check = [](bool right) {
    if (!right) throw std::invalid_argument("an automaton of this grammar is malformed");
  };
  const auto states = static_cast<std::uint32_t>(std::count(text.begin(), text.end(), ';'));
  check(is_automaton(text) && states > 0 && text.back() == ';');
  for (std::uint32_t i = 0; i < states; ++i) add_state();
  std::size_t at = 1;
  const auto number = [&](char end) {
    std::uint32_t value = 0;
    const std::size_t begin = at;
    for (; text[at] != end; ++at) {
      const char c = text[at];
      const bool digit = c >= '0' && c <= '9';
      check((digit || (c >= 'a' && c <= 'f')) && at - begin < 7);
      value = value * 16 + static_cast<std::uint32_t>(digit ? c - '0' : c - 'a' + 10);
    }
    check(at++ > begin);
    return value;
  };
  for (std::uint32_t state = 0; state < states; ++state, ++at) {
    if (text[at] == '!') {
      check(state > 0);
      add_end(static_cast<std::int32_t>(state));
      ++at;
    }
    if (text[at] == '@') {
      ++at;
      const std::uint32_t shortest = number('-');
      add_counts(static_cast<std::int32_t>(state), shortest, number(','));
    }
    while (text[at] != ';') {
      const std::uint32_t low = number('-');
      const std::uint32_t high = number('>');
      const std::uint32_t to = number(',');
      check(low <= high && high <= 0xff && to < states);
      add_edge(static_cast<std::int32_t>(state), low, high, static_cast<std::int32_t>(to));
    }
  }
}

// Rules whose name begins like this are repeated by counting instead of by unrolling.
inline bool counts_repeats(std::string_view rule) { return rule.substr(0, 12) == "bl.repeated."; }

// The bounds on the characters of a rule that is an automaton of JSON strings:
// "bl.counted.FEWEST.MOST.MAINS.NUMBER". State 0 reads the quote, state 1 is the end, and MAINS
// states from 2 on are entered with every character. "-" for MOST is no bound. For every state the
// automaton says how many characters are read at least and at most until the end (@), so that no
// text is begun that cannot end within the bounds.
struct RuleCounts {
  std::int32_t fewest = 0;
  std::int32_t most = -1;
  std::int32_t mains = 0;                 // 0: nothing is counted
  std::vector<std::uint32_t> shortest{};  // by state; read at the first step
  std::vector<std::uint32_t> longest{};
  std::int32_t tail = 0;  // the largest of `shortest`
  bool endless = true;    // whether every state may read characters without end

  // Takes the counts of states out of the rule's text.
  void read(std::string_view text) {
    const auto ignore = [](auto...) {};
    read_automaton(
        text, [&] { shortest.push_back(0); }, ignore, ignore,
        [&](std::int32_t state, std::uint32_t least, std::uint32_t greatest) {
          longest.resize(shortest.size(), kEndless);
          shortest[static_cast<std::size_t>(state)] = least;
          longest[static_cast<std::size_t>(state)] = greatest;
          tail = std::max(tail, static_cast<std::int32_t>(least));
          endless = endless && (greatest == kEndless || state == 1);
        });
    longest.resize(shortest.size(), kEndless);
  }

  // Advances `count` for a step to the state `to` of the rule. Returns whether the bounds allow it.
  bool step(std::int32_t from, std::int32_t to, std::int32_t& count) const {
    if (to == 1) return count >= fewest;
    if (from != 0 && to >= 2 && to < 2 + mains) ++count;
    const auto state = static_cast<std::size_t>(to);
    const std::int64_t end = std::int64_t{count} + shortest[state];
    if (most >= 0 && end > most) return false;
    if (longest[state] != kEndless && count + std::int64_t{longest[state]} < fewest) return false;
    count = std::min(count, std::max(fewest, most));
    return true;
  }

  // How many characters a token may have that certainly keeps the bounds.
  std::int32_t left(std::int32_t count) const {
    if (!endless && count < fewest) return 0;
    return most < 0 ? std::numeric_limits<std::int32_t>::max() : most - count - tail;
  }
};

inline RuleCounts rule_counts(std::string_view rule) {
  constexpr std::string_view kPrefix = "bl.counted.";
  RuleCounts counts;
  if (rule.substr(0, kPrefix.size()) != kPrefix) return counts;
  rule.remove_prefix(kPrefix.size());
  const auto number = [&] {
    std::int64_t value = -1;
    std::size_t at = 0;
    for (; at < rule.size() && rule[at] != '.'; ++at) {
      if (rule[at] < '0' || rule[at] > '9') continue;
      value = std::max<std::int64_t>(value, 0) * 10 + (rule[at] - '0');
      value = std::min<std::int64_t>(value, std::numeric_limits<std::int32_t>::max() / 2);
    }
    rule.remove_prefix(std::min(at + 1, rule.size()));
    return static_cast<std::int32_t>(value);
  };
  counts.fewest = std::max(number(), 0);
  counts.most = number();
  counts.mains = std::max(number(), 0);
  return counts;
}

// A state of a counted rule near its upper bound: `mask` allows tokens that may have too many
// characters. Returns a mask that lets the parser check those with `left` or more.
template <class Mask, class Vocabulary>
Mask mask_near_end(const Mask& mask, const Vocabulary& vocabulary,
                   const std::vector<std::int32_t>& characters, std::int32_t left) {
  using Store = typename Mask::StoreType;
  Mask near;
  near.store_type = Store::kAccepted;
  near.uncertain_indices = mask.uncertain_indices;
  const auto add = [&](std::int32_t index) {
    const bool certain = characters[static_cast<std::size_t>(index)] < left;
    (certain ? near.accepted_indices : near.uncertain_indices).push_back(index);
  };
  if (mask.store_type == Store::kAccepted) {
    for (const std::int32_t index : mask.accepted_indices) add(index);
  } else {
    std::vector<bool> out(vocabulary.size());
    for (const std::int32_t index : mask.uncertain_indices)
      out[static_cast<std::size_t>(index)] = true;
    for (const std::int32_t index : mask.rejected_indices)
      out[static_cast<std::size_t>(index)] = true;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(vocabulary.size()); ++i) {
      if (out[static_cast<std::size_t>(i)]) continue;
      if (mask.store_type == Store::kAcceptedBitset &&
          !mask.accepted_bitset[vocabulary[static_cast<std::size_t>(i)].first]) {
        continue;
      }
      add(i);
    }
  }
  std::sort(near.uncertain_indices.begin(), near.uncertain_indices.end());
  return near;
}

}  // namespace bl
