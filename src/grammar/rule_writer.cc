#include "grammar/rule_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "grammar/library_hooks.h"
#include "grammar/work_budget.h"

namespace bl {
namespace {

constexpr std::size_t kMostBytes = 64u << 20;
constexpr int kMostBlanks = 64;

std::string joined(const std::vector<std::string>& choices) {
  std::string body;
  for (const std::string& one : choices) {
    if (!body.empty()) body += " | ";
    body += one;
  }
  return body;
}

// How many characters a JSON string reads at least and at most from every state to its end.
// `mains`: see RuleWriter::Counts. From every state the end can be reached.
class Distances {
 public:
  Distances(const Automaton& automaton, std::size_t mains)
      : mains_(mains), before_(automaton.states.size()), open_edges_(automaton.states.size()) {
    const std::size_t size = automaton.states.size();
    shortest.assign(size, kEndless);
    longest.assign(size, kEndless);
    for (std::size_t i = 0; i < size; ++i) {
      open_edges_[i] = automaton.states[i].edges.size();
      for (const Automaton::Edge& edge : automaton.states[i].edges) {
        before_[static_cast<std::size_t>(edge.to)].push_back(i);
      }
    }
    find_shortest();
    find_longest();
  }

  std::vector<std::uint32_t> shortest;
  std::vector<std::uint32_t> longest;  // kEndless where a circle can be reached

 private:
  std::uint32_t characters(std::size_t to) const { return to >= 2 && to < 2 + mains_ ? 1 : 0; }

  // Steps that read no character go to the front of the queue, so that it stays sorted.
  void find_shortest() {
    std::deque<std::size_t> open{1};
    shortest[1] = 0;
    while (!open.empty()) {
      const std::size_t to = open.front();
      open.pop_front();
      for (const std::size_t from : before_[to]) {
        spend_work(2);
        const std::uint32_t length = shortest[to] + characters(to);
        if (length >= shortest[from]) continue;
        shortest[from] = length;
        if (characters(to) == 0) {
          open.push_front(from);
        } else {
          open.push_back(from);
        }
      }
    }
  }

  // Settles states once everything behind them is settled; on circles that never comes.
  void find_longest() {
    std::vector<std::size_t> open{1};
    std::vector<std::uint32_t> found(longest.size());
    while (!open.empty()) {
      const std::size_t to = open.back();
      open.pop_back();
      longest[to] = found[to];
      for (const std::size_t from : before_[to]) {
        spend_work(2);
        found[from] = std::max(found[from], found[to] + characters(to));
        if (--open_edges_[from] == 0) open.push_back(from);
      }
    }
  }

  std::size_t mains_;
  std::vector<std::vector<std::size_t>> before_;  // one entry per edge
  std::vector<std::size_t> open_edges_;
};

// The form that the grammar library reads (read_automaton() in library_hooks.h).
std::string written(const Automaton& automaton, const Distances* distances = nullptr) {
  std::string text = "Regex(\"\\x01";
  for (std::size_t i = 0; i < automaton.states.size(); ++i) {
    const Automaton::State& state = automaton.states[i];
    if (state.accepts) text += '!';
    if (distances != nullptr) {
      text += fmt::format("@{:x}-{:x},", distances->shortest[i], distances->longest[i]);
    }
    for (const Automaton::Edge& edge : state.edges) {
      text += fmt::format("{:x}-{:x}>{:x},", static_cast<unsigned>(edge.low),
                          static_cast<unsigned>(edge.high), edge.to);
    }
    text += ';';
  }
  return text + "\")";
}

}  // namespace

std::string RuleWriter::add(const std::string& body, const std::string& prefix) {
  spend_work(20 + body.size() / 8);
  const auto [found, added] = names_.try_emplace(prefix + body, "");
  if (!added) return found->second;
  found->second = fmt::format("{}{}", prefix, count_++);
  if (text_.size() + body.size() > kMostBytes) {
    fail(ErrorCode::kLimit, "the JSON schema needs a grammar of more than {} MiB; make it smaller",
         kMostBytes >> 20);
  }
  text_ += fmt::format("{} ::= {}\n", found->second, body);
  return found->second;
}

std::string RuleWriter::choice(const std::vector<std::string>& choices) {
  return add(joined(choices), "r");
}

std::string RuleWriter::reserve() { return fmt::format("v{}", count_++); }

void RuleWriter::define(const std::string& name, const std::vector<std::string>& choices) {
  text_ += fmt::format("{} ::= {}\n", name, joined(choices));
}

std::string RuleWriter::gap(const std::string& next, Gap gap) {
  switch (whitespace_.kind) {
    case JsonWhitespace::Kind::kCompact:
      return next;
    case JsonWhitespace::Kind::kOneLine:
      return gap == Gap::kBehindSeparator ? "\" \" " + next : next;
    case JsonWhitespace::Kind::kUpTo: {
      if (whitespace_.most == 0) return next;
      const std::string space = choice({"[ \\n\\r\\t]"});
      return choice({repeated(space, 0, whitespace_.most) + " " + next});
    }
    case JsonWhitespace::Kind::kDefault:
      break;
  }
  const std::string blanks = repeated(choice({"\" \""}), 0, kMostBlanks);
  return choice({next, "\" \" " + next, "\"\\n\" " + blanks + " " + next});
}

std::string RuleWriter::automaton(const Automaton& automaton) {
  return add(written(automaton), "a");
}

std::string RuleWriter::counted(const Automaton& automaton, const Counts& counts) {
  if (counts.fewest == 0 && !counts.most) return this->automaton(automaton);
  const Distances distances(automaton, counts.mains);
  return add(written(automaton, &distances),
             fmt::format("bl.counted.{}.{}.{}.", counts.fewest,
                         counts.most ? std::to_string(*counts.most) : "-", counts.mains));
}

std::string RuleWriter::repeated(const std::string& item, std::size_t fewest, std::size_t most) {
  // A rule of its own: the library would take what follows another reference for what follows here.
  return fmt::format("{}{{{},{}}}", add(item, "bl.repeated."), fewest, most);
}

std::string RuleWriter::text(const std::string& first) const {
  return fmt::format("root ::= {}\n{}", first, text_);
}

}  // namespace bl
