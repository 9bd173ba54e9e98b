#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "grammar/number_text.h"
#include "grammar/pattern.h"

namespace bl {
namespace {

constexpr int kLowest = -299;
constexpr int kHighestSmall = -5;
constexpr int kLowestLarge = 16;
constexpr int kHighest = 299;

// All ways to write exponents between `low` and `high`.
Automaton exponent_texts(int low, int high) {
  std::vector<std::string> texts;
  for (int e = low; e <= high; ++e) {
    for (const char* letter : {"e", "E"}) {
      const std::string digits = std::to_string(std::abs(e));
      const std::string padded = digits.size() < 2 ? "0" + digits : digits;
      if (e < 0) {
        texts.push_back(letter + ("-" + digits));
        texts.push_back(letter + ("-" + padded));
      } else {
        texts.push_back(letter + digits);
        texts.push_back(letter + ("+" + digits));
      }
    }
  }
  return trimmed(one_of_texts(texts));
}

// The texts of `first`, each followed by one of `second`. No text of `first` may go on with a first
// byte of `second`.
Automaton followed_by(const Automaton& first, const Automaton& second) {
  Automaton result = first;
  const int shift = static_cast<int>(first.states.size());
  for (const Automaton::State& state : second.states) {
    result.states.push_back(state);
    for (Automaton::Edge& edge : result.states.back().edges) edge.to += shift;
  }
  for (std::size_t i = 0; i < first.states.size(); ++i) {
    Automaton::State& state = result.states[i];
    if (!std::exchange(state.accepts, false)) continue;
    for (const Automaton::Edge& edge : second.states[0].edges) {
      state.edges.push_back({edge.low, edge.high, edge.to + shift});
    }
    std::sort(state.edges.begin(), state.edges.end(),
              [](const auto& a, const auto& b) { return a.low < b.low; });
  }
  return result;
}

// Whether every whole number is a multiple, and no number below 0.0001 is.
bool divides_whole_numbers(const Decimal& divisor) {
  if (divisor.whole != "0" || divisor.fraction.size() > 4) return divisor == Decimal{.whole = "1"};
  int value = 0;
  int power = 1;
  for (const char digit : divisor.fraction) {
    value = value * 10 + (digit - '0');
    power *= 10;
  }
  return value > 0 && power % value == 0;
}

class ExponentMaker {
 public:
  ExponentMaker(const NumberQuestions& questions,
                const std::function<bool(const NumberFacts&)>& accepts)
      : questions_(questions), accepts_(accepts) {}

  Automaton run() {
    parts_.push_back(json_numbers(questions_, {}, accepts_));
    if (!std::all_of(questions_.divisors.begin(), questions_.divisors.end(),
                     divides_whole_numbers)) {
      return std::move(parts_[0]);
    }
    std::set<int> edges;  // powers of ten within which a bound lies
    for (const Decimal& bound : questions_.bounds) {
      if (!bound.is_zero()) edges.insert(magnitude_of(bound));
    }
    add_between(kLowest, kHighestSmall, edges);
    add_between(kLowestLarge, kHighest, edges);
    std::vector<const Automaton*> pointers;
    for (const Automaton& part : parts_) pointers.push_back(&part);
    return combine(
        pointers,
        [](const std::vector<bool>& bits) {
          return std::find(bits.begin(), bits.end(), true) != bits.end();
        },
        "a bounded number");
  }

 private:
  void add_between(int low, int high, const std::set<int>& edges) {
    int begin = low;
    for (const int edge : edges) {
      if (edge < low || edge > high) continue;
      if (begin < edge) add(begin, edge - 1);
      add(edge, edge);
      begin = edge + 1;
    }
    if (begin <= high) add(begin, high);
  }

  // Numbers with exponents in this range, which all compare alike with the bounds, or which are one
  // power of ten.
  void add(int low, int high) {
    static const Automaton kMantissas = search_of_pattern("^-?[1-9](\\.[0-9]{1,16})?$");
    NumberQuestions scaled{.bounds = questions_.bounds};
    for (Decimal& bound : scaled.bounds) bound = shifted(bound, -low);
    const Automaton allowed = json_numbers(scaled, {}, [&](NumberFacts facts) {
      facts.whole = low > 0;
      facts.as_float = true;
      facts.multiple.assign(questions_.divisors.size(), low > 0);
      return accepts_(facts);
    });
    const Automaton mantissas = combine(
        {&kMantissas, &allowed}, [](const std::vector<bool>& bits) { return bits[0] && bits[1]; },
        "a bounded number");
    if (!mantissas.empty()) parts_.push_back(followed_by(mantissas, exponent_texts(low, high)));
  }

  const NumberQuestions& questions_;
  const std::function<bool(const NumberFacts&)>& accepts_;
  std::vector<Automaton> parts_;
};

}  // namespace

Automaton json_numbers_with_exponents(const NumberQuestions& questions,
                                      const std::function<bool(const NumberFacts&)>& accepts) {
  return ExponentMaker(questions, accepts).run();
}

}  // namespace bl
