#include "grammar/pattern.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "grammar/pattern_tree.h"
#include "grammar/work_budget.h"

namespace bl {
namespace {

using PatternKind = PatternNode::Kind;

// Thompson's automaton with three kinds of edges without a character: free ones, and ones that only
// the begin or the end of the text lets through.
struct FreeAutomaton {
  struct State {
    std::vector<int> free{};
    std::vector<int> at_begin{};
    std::vector<int> at_end{};
    CodePoints points{};  // leads to `next`
    int next = -1;
  };
  std::vector<State> states{};
  int start = 0;
  int final = 0;
};

constexpr std::size_t kMostFreeStates = 50000;
constexpr std::size_t kMostWork = 3000000;

class Builder {
 public:
  FreeAutomaton run(const PatternNode& node) {
    made_.start = add_state();
    made_.final = build(node, made_.start);
    return std::move(made_);
  }

 private:
  using Links = std::vector<int> FreeAutomaton::State::*;

  int add_state() {
    if (made_.states.size() >= kMostFreeStates) {
      fail(ErrorCode::kLimit, "needs more than {} states; make it simpler", kMostFreeStates);
    }
    made_.states.emplace_back();
    return static_cast<int>(made_.states.size()) - 1;
  }
  FreeAutomaton::State& state(int at) { return made_.states[static_cast<std::size_t>(at)]; }
  void link(int from, int to, Links kind = &FreeAutomaton::State::free) {
    (state(from).*kind).push_back(to);
  }

  // Builds what `node` matches from the state `from`; returns the state behind it.
  int build(const PatternNode& node, int from) {
    const int fresh = add_state();
    link(from, fresh);
    int at = fresh;
    switch (node.kind) {
      case PatternKind::kEmpty:
        return at;
      case PatternKind::kSet: {
        const int to = add_state();
        state(at).points = node.points;
        state(at).next = to;
        return to;
      }
      case PatternKind::kBegin:
      case PatternKind::kEnd: {
        const int to = add_state();
        link(at, to,
             node.kind == PatternKind::kBegin ? &FreeAutomaton::State::at_begin
                                              : &FreeAutomaton::State::at_end);
        return to;
      }
      case PatternKind::kSequence:
        for (const PatternNode& part : node.parts) at = build(part, at);
        return at;
      case PatternKind::kChoice: {
        const int to = add_state();
        for (const PatternNode& part : node.parts) link(build(part, at), to);
        return to;
      }
      case PatternKind::kRepeat:
        return repeat(node, at);
      case PatternKind::kAhead:
      case PatternKind::kNotAhead:
        break;
    }
    fail(ErrorCode::kInvalidArgument,
         "looks ahead elsewhere than where it begins with ^, which is not supported");
  }

  int repeat(const PatternNode& node, int from) {
    int at = from;
    for (std::size_t i = 0; i < node.fewest; ++i) at = build(node.parts[0], at);
    if (!node.most) {
      const int loop = add_state();
      link(at, loop);
      link(build(node.parts[0], loop), loop);
      return loop;
    }
    const int to = add_state();
    for (std::size_t i = node.fewest; i < *node.most; ++i) {
      link(at, to);
      at = build(node.parts[0], at);
    }
    link(at, to);
    return to;
  }

  FreeAutomaton made_;
};

// The subset construction. The search begins anew before each character; once the expression has
// matched, every text that follows is accepted.
class Searcher {
 public:
  explicit Searcher(const FreeAutomaton& from) : from_(from) {}

  Automaton run() {
    const std::vector<int> begin = closure({from_.start}, true, false);
    restart_ = closure({from_.start}, false, false);
    number_of(begin, true);
    for (std::size_t i = 0; i < open_.size(); ++i) expand(i);
    return trimmed(std::move(result_));
  }

 private:
  const FreeAutomaton::State& state(int at) const {
    return from_.states[static_cast<std::size_t>(at)];
  }

  std::vector<int> closure(std::vector<int> open, bool at_begin, bool at_end) {
    std::vector<int> found;
    if (seen_.empty()) seen_.assign(from_.states.size(), 0);
    ++round_;
    const auto add = [&](const std::vector<int>& targets) {
      for (const int to : targets) {
        if (std::exchange(seen_[static_cast<std::size_t>(to)], round_) != round_) {
          open.push_back(to);
        }
      }
    };
    std::vector<int> first = std::move(open);
    open.clear();
    add(first);
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      found.push_back(at);
      add(state(at).free);
      if (at_begin) add(state(at).at_begin);
      if (at_end) add(state(at).at_end);
    }
    work_ += found.size() + 1;
    spend_work(4 * found.size() + 4);
    if (work_ > kMostWork) fail(ErrorCode::kLimit, "takes too long to compile; make it simpler");
    std::sort(found.begin(), found.end());
    return found;
  }

  bool is_final(const std::vector<int>& set) const {
    return std::binary_search(set.begin(), set.end(), from_.final);
  }

  int number_of(const std::vector<int>& set, bool at_begin) {
    const bool matched = is_final(set);
    const std::vector<int> key = matched ? std::vector<int>{from_.final} : kept(set);
    const auto [found, added] =
        known_.try_emplace({at_begin && !matched, key}, static_cast<int>(known_.size()));
    if (!added) return found->second;
    if (known_.size() > kMostStates) {
      fail(ErrorCode::kLimit, "needs more than {} states; make it simpler", kMostStates);
    }
    open_.push_back(key);
    const bool accepts = matched || is_final(closure(set, at_begin, true));
    result_.states.push_back({.edges = {}, .accepts = accepts});
    return found->second;
  }

  // The states of a set that have something to do: the others are only passed through.
  std::vector<int> kept(const std::vector<int>& set) const {
    std::vector<int> result;
    for (const int at : set) {
      if (state(at).next >= 0 || !state(at).at_end.empty() || !state(at).at_begin.empty()) {
        result.push_back(at);
      }
    }
    return result;
  }

  void expand(std::size_t at) {
    const std::vector<int> set = open_[at];
    std::vector<Automaton::Edge> edges;
    if (set.size() == 1 && set[0] == from_.final) {
      for (const CodeRange& range : CodePoints::all().ranges()) {
        edges.push_back({range.low, range.high, static_cast<int>(at)});
      }
      result_.states[at].edges = std::move(edges);
      return;
    }
    std::vector<char32_t> cuts;
    for (const CodeRange& range : CodePoints::all().ranges()) {
      cuts.push_back(range.low);
      cuts.push_back(range.high + 1);
    }
    for (const int member : set) {
      for (const CodeRange& range : state(member).points.ranges()) {
        cuts.push_back(range.low);
        cuts.push_back(range.high + 1);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      if (cuts[c] == 0xD800) continue;
      std::vector<int> next;
      for (const int member : set) {
        if (state(member).points.contains(cuts[c])) next.push_back(state(member).next);
      }
      std::vector<int> reached = closure(std::move(next), false, false);
      std::vector<int> both;
      std::set_union(reached.begin(), reached.end(), restart_.begin(), restart_.end(),
                     std::back_inserter(both));
      const int to = number_of(both, false);
      if (!edges.empty() && edges.back().to == to && edges.back().high + 1 == cuts[c]) {
        edges.back().high = cuts[c + 1] - 1;
      } else {
        edges.push_back({cuts[c], cuts[c + 1] - 1, to});
      }
    }
    result_.states[at].edges = std::move(edges);
  }

  const FreeAutomaton& from_;
  std::vector<int> restart_;
  std::vector<int> seen_;
  int round_ = 0;
  std::size_t work_ = 0;
  std::map<std::pair<bool, std::vector<int>>, int> known_;
  std::vector<std::vector<int>> open_;
  Automaton result_;
};

Automaton search_of(const PatternNode& node) { return Searcher(Builder().run(node)).run(); }

PatternNode anchored(PatternNode node) {
  PatternNode sequence{.kind = PatternKind::kSequence};
  sequence.parts.push_back({.kind = PatternKind::kBegin});
  sequence.parts.push_back(std::move(node));
  return sequence;
}

bool looks_ahead(const PatternNode& node) {
  return node.kind == PatternKind::kAhead || node.kind == PatternKind::kNotAhead ||
         std::any_of(node.parts.begin(), node.parts.end(), looks_ahead);
}

// The texts of one alternative: `^`, then what it looks ahead for, then the rest.
Automaton search_of_alternative(const PatternNode& node) {
  const std::vector<PatternNode>& parts = node.parts;
  if (!looks_ahead(node) || node.kind != PatternKind::kSequence || parts.empty() ||
      parts[0].kind != PatternKind::kBegin) {
    return search_of(node);
  }
  PatternNode rest{.kind = PatternKind::kSequence};
  std::vector<Automaton> all;
  std::vector<bool> expected;
  std::size_t i = 1;
  for (; i < parts.size(); ++i) {
    if (parts[i].kind != PatternKind::kAhead && parts[i].kind != PatternKind::kNotAhead) break;
    all.push_back(search_of(anchored(parts[i].parts[0])));
    expected.push_back(parts[i].kind == PatternKind::kAhead);
  }
  rest.parts.assign(parts.begin() + static_cast<std::ptrdiff_t>(i), parts.end());
  all.push_back(search_of(anchored(std::move(rest))));
  expected.push_back(true);
  std::vector<const Automaton*> pointers;
  for (const Automaton& one : all) pointers.push_back(&one);
  return combine(
      pointers, [&](const std::vector<bool>& bits) { return bits == expected; }, "it");
}

}  // namespace

Automaton search_of_pattern(std::string_view regex) {
  const PatternNode node = parse_pattern(regex);
  if (!looks_ahead(node)) return search_of(node);
  if (node.kind != PatternKind::kChoice) return search_of_alternative(node);
  std::vector<Automaton> all;
  std::vector<const Automaton*> pointers;
  for (const PatternNode& part : node.parts) all.push_back(search_of_alternative(part));
  for (const Automaton& one : all) pointers.push_back(&one);
  return combine(
      pointers,
      [](const std::vector<bool>& bits) {
        return std::find(bits.begin(), bits.end(), true) != bits.end();
      },
      "it");
}

}  // namespace bl
