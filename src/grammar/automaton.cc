#include "grammar/automaton.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "grammar/work_budget.h"

namespace bl {
namespace {

using Edge = Automaton::Edge;
using State = Automaton::State;

void add_any(State& state, int to) {
  for (const CodeRange& range : CodePoints::all().ranges()) {
    state.edges.push_back({range.low, range.high, to});
  }
}

// Appends an edge, joining it to its left neighbour if that leads to the same state.
void append_edge(std::vector<Edge>& edges, const Edge& edge) {
  if (!edges.empty() && edges.back().to == edge.to && edges.back().high + 1 == edge.low) {
    edges.back().high = edge.high;
  } else {
    edges.push_back(edge);
  }
}

std::vector<bool> states_that_lead_to_acceptance(const Automaton& automaton) {
  const std::size_t size = automaton.states.size();
  std::vector<std::vector<int>> from(size);
  std::vector<bool> useful(size);
  std::vector<int> open;
  for (std::size_t i = 0; i < size; ++i) {
    for (const Edge& edge : automaton.states[i].edges) {
      from[static_cast<std::size_t>(edge.to)].push_back(static_cast<int>(i));
    }
    if (!automaton.states[i].accepts) continue;
    useful[i] = true;
    open.push_back(static_cast<int>(i));
  }
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    for (const int previous : from[static_cast<std::size_t>(at)]) {
      if (useful[static_cast<std::size_t>(previous)]) continue;
      useful[static_cast<std::size_t>(previous)] = true;
      open.push_back(previous);
    }
  }
  return useful;
}

// Keeps the states for which `to` gives a new number; the start must get 0.
Automaton renumbered(const Automaton& automaton, const std::vector<int>& to, int count) {
  Automaton result;
  result.states.resize(static_cast<std::size_t>(count));
  std::vector<bool> done(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < automaton.states.size(); ++i) {
    if (to[i] < 0 || done[static_cast<std::size_t>(to[i])]) continue;
    done[static_cast<std::size_t>(to[i])] = true;
    State& state = result.states[static_cast<std::size_t>(to[i])];
    state.accepts = automaton.states[i].accepts;
    for (const Edge& edge : automaton.states[i].edges) {
      const int target = to[static_cast<std::size_t>(edge.to)];
      if (target >= 0) append_edge(state.edges, {edge.low, edge.high, target});
    }
  }
  return result;
}

// Drops states from which nothing is accepted; the start stays.
Automaton without_dead_ends(const Automaton& automaton) {
  const std::vector<bool> useful = states_that_lead_to_acceptance(automaton);
  std::vector<int> to(automaton.states.size(), -1);
  int count = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (i == 0 || useful[i]) to[i] = count++;
  }
  return renumbered(automaton, to, count);
}

// One round of refinement: states stay together if they agree so far and their edges lead to
// classes that agree. Returns the number of classes.
int refine(const Automaton& automaton, std::vector<int>& classes) {
  std::map<std::pair<int, std::vector<std::pair<std::pair<char32_t, char32_t>, int>>>, int> known;
  std::vector<int> next(classes.size());
  for (std::size_t i = 0; i < classes.size(); ++i) {
    spend_work(20 + 10 * automaton.states[i].edges.size());
    std::vector<Edge> edges;
    for (const Edge& edge : automaton.states[i].edges) {
      append_edge(edges, {edge.low, edge.high, classes[static_cast<std::size_t>(edge.to)]});
    }
    std::vector<std::pair<std::pair<char32_t, char32_t>, int>> key;
    for (const Edge& edge : edges) key.push_back({{edge.low, edge.high}, edge.to});
    const auto [found, added] =
        known.try_emplace({classes[i], std::move(key)}, static_cast<int>(known.size()));
    next[i] = found->second;
  }
  classes = std::move(next);
  return static_cast<int>(known.size());
}

// The rounds of refinement: counters need as many as they count, so large ones stay as they are,
// which costs only space.
constexpr int kMostRounds = 64;

}  // namespace

int Automaton::step(int state, char32_t symbol) const {
  const std::vector<Edge>& edges = states[static_cast<std::size_t>(state)].edges;
  const auto found = std::upper_bound(edges.begin(), edges.end(), symbol,
                                      [](char32_t at, const Edge& edge) { return at < edge.low; });
  if (found == edges.begin() || symbol > std::prev(found)->high) return kNone;
  return std::prev(found)->to;
}

bool Automaton::matches(std::string_view text) const {
  if (states.empty()) return false;
  int at = 0;
  for (std::size_t i = 0; i < text.size() && at != kNone;) {
    const CodePoint point = code_point_at(text, i);
    at = step(at, point.value);
    i += point.size;
  }
  return at != kNone && states[static_cast<std::size_t>(at)].accepts;
}

bool Automaton::empty() const {
  return std::none_of(states.begin(), states.end(),
                      [](const State& state) { return state.accepts; });
}

Automaton any_text() { return text_of_length(0, std::nullopt); }

Automaton text_of_length(std::size_t fewest, std::optional<std::size_t> most) {
  Automaton result;
  if (most && *most < fewest) {
    result.states.resize(1);
    return result;
  }
  const std::size_t last = most.value_or(fewest);
  result.states.resize(last + 1);
  for (std::size_t i = 0; i <= last; ++i) {
    result.states[i].accepts = i >= fewest;
    if (i < last) add_any(result.states[i], static_cast<int>(i + 1));
  }
  if (!most) add_any(result.states[last], static_cast<int>(last));
  return result;
}

Automaton one_of_texts(const std::vector<std::string>& texts) {
  std::vector<std::map<char32_t, int>> trie(1);
  std::vector<bool> ends(1);
  for (const std::string& text : texts) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < text.size();) {
      const CodePoint point = code_point_at(text, i);
      const auto [found, added] = trie[at].try_emplace(point.value, static_cast<int>(trie.size()));
      at = static_cast<std::size_t>(found->second);
      if (added) {
        trie.emplace_back();
        ends.push_back(false);
      }
      i += point.size;
    }
    ends[at] = true;
  }
  Automaton result;
  result.states.resize(trie.size());
  for (std::size_t i = 0; i < trie.size(); ++i) {
    result.states[i].accepts = ends[i];
    for (const auto& [point, to] : trie[i]) result.states[i].edges.push_back({point, point, to});
  }
  return result;
}

namespace {

// Builds the product of several automata.
class Product {
 public:
  Product(const std::vector<const Automaton*>& parts,
          const std::function<bool(const std::vector<bool>&)>& accepts, std::string_view what)
      : parts_(parts), accepts_(accepts), what_(what) {}

  Automaton run() {
    std::vector<int> start(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      start[i] = parts_[i]->states.empty() ? Automaton::kNone : 0;
    }
    number_of(start);
    for (std::size_t i = 0; i < open_.size(); ++i) expand(i);
    return std::move(result_);
  }

 private:
  int number_of(const std::vector<int>& tuple) {
    const auto [found, added] = known_.try_emplace(tuple, static_cast<int>(known_.size()));
    if (!added) return found->second;
    if (known_.size() > kMostStates) {
      fail(ErrorCode::kLimit, "{} needs more than {} states; make it simpler", what_, kMostStates);
    }
    open_.push_back(&found->first);
    std::vector<bool> bits(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      bits[i] = tuple[i] != Automaton::kNone &&
                parts_[i]->states[static_cast<std::size_t>(tuple[i])].accepts;
    }
    result_.states.push_back({.edges = {}, .accepts = accepts_(bits)});
    return found->second;
  }

  void expand(std::size_t at) {
    const std::vector<int> tuple = *open_[at];
    std::vector<char32_t> cuts;
    for (const CodeRange& range : CodePoints::all().ranges()) {
      cuts.push_back(range.low);
      cuts.push_back(range.high + 1);
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (tuple[i] == Automaton::kNone) continue;
      for (const Edge& edge : parts_[i]->states[static_cast<std::size_t>(tuple[i])].edges) {
        cuts.push_back(edge.low);
        cuts.push_back(edge.high + 1);
      }
    }
    spend_work(cuts.size() * parts_.size() * 8);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<Edge> edges;
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      if (cuts[c] == 0xD800) continue;
      std::vector<int> next(parts_.size());
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        next[i] =
            tuple[i] == Automaton::kNone ? Automaton::kNone : parts_[i]->step(tuple[i], cuts[c]);
      }
      append_edge(edges, {cuts[c], cuts[c + 1] - 1, number_of(next)});
    }
    result_.states[at].edges = std::move(edges);
  }

  const std::vector<const Automaton*>& parts_;
  const std::function<bool(const std::vector<bool>&)>& accepts_;
  std::string_view what_;
  std::map<std::vector<int>, int> known_;
  std::vector<const std::vector<int>*> open_;  // keys of known_, in the order of their numbers
  Automaton result_;
};

}  // namespace

Automaton combine(const std::vector<const Automaton*>& parts,
                  const std::function<bool(const std::vector<bool>&)>& accepts,
                  std::string_view what) {
  return trimmed(Product(parts, accepts, what).run());
}

Automaton trimmed(Automaton automaton) {
  if (automaton.states.empty()) automaton.states.resize(1);
  Automaton result = without_dead_ends(automaton);
  std::vector<int> classes(result.states.size());
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = result.states[i].accepts ? 1 : 0;
  int count = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    const int now = refine(result, classes);
    if (now == count) {
      // refine() numbers classes in the order of states, so the start's class is 0.
      return renumbered(result, classes, count);
    }
    count = now;
  }
  return result;
}

std::optional<std::vector<std::string>> texts_of(const Automaton& automaton, std::size_t most) {
  const Automaton clean = without_dead_ends(automaton);
  std::vector<std::string> texts;
  std::vector<std::pair<int, std::string>> open{{0, ""}};
  std::size_t visited = 0;
  while (!open.empty()) {
    const auto [at, text] = std::move(open.back());
    open.pop_back();
    if (++visited > 64 * (most + 1)) return std::nullopt;
    const State& state = clean.states[static_cast<std::size_t>(at)];
    if (state.accepts) texts.push_back(text);
    if (texts.size() > most) return std::nullopt;
    for (auto edge = state.edges.rbegin(); edge != state.edges.rend(); ++edge) {
      if (edge->high - edge->low > most) return std::nullopt;
      for (char32_t point = edge->high + 1; point-- > edge->low;) {
        std::string longer = text;
        append_utf8(point, longer);
        open.push_back({edge->to, std::move(longer)});
      }
    }
  }
  return texts;
}

}  // namespace bl
