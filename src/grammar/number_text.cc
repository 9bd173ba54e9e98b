#include "grammar/number_text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "grammar/work_budget.h"

namespace bl {
namespace {

enum Phase : int { kStart, kMinus, kZero, kWhole, kDot, kFraction };

// Everything that is remembered while a number is read, as plain numbers so that it can be a key.
struct Reading {
  int phase = kStart;
  bool negative = false;
  bool nonzero = false;
  bool fraction_nonzero = false;
  std::vector<int> places{};    // of each bound: digits compared in the current part, saturated
  std::vector<int> order{};     // of each bound: how the digits so far compare with it
  std::vector<int> residues{};  // of each divisor
  std::vector<int> decimals{};  // of each divisor: decimals so far, saturated; −1: not a multiple

  auto operator<=>(const Reading&) const = default;
};

// A divisor as value / 10^decimals.
struct Divisor {
  int value;
  int decimals;
};

class NumberMaker {
 public:
  NumberMaker(const NumberQuestions& questions, NumberForm form,
              const std::function<bool(const NumberFacts&)>& accepts)
      : questions_(questions), form_(form), accepts_(accepts) {
    for (const Decimal& divisor : questions.divisors) divisors_.push_back(divisor_of(divisor));
  }

  Automaton run() {
    Reading start;
    start.places.resize(questions_.bounds.size());
    start.order.resize(questions_.bounds.size());
    start.residues.resize(divisors_.size());
    start.decimals.resize(divisors_.size());
    number_of(start);
    for (std::size_t i = 0; i < open_.size(); ++i) expand(i);
    if (form_.exponents) add_exponents();
    return trimmed(std::move(result_));
  }

 private:
  static Divisor divisor_of(const Decimal& divisor) {
    const std::string digits = divisor.whole + divisor.fraction;
    constexpr std::size_t kMostDigits = 9;
    const std::size_t begin = std::min(digits.find_first_not_of('0'), digits.size());
    if (digits.size() - begin > kMostDigits || divisor.fraction.size() > kMostDigits) {
      fail(ErrorCode::kLimit, "multipleOf has too many digits to be kept");
    }
    return {std::atoi(digits.c_str()), static_cast<int>(divisor.fraction.size())};
  }

  int number_of(const Reading& reading) {
    const auto [found, added] = known_.try_emplace(reading, static_cast<int>(known_.size()));
    if (!added) return found->second;
    if (known_.size() > kMostStates) {
      fail(ErrorCode::kLimit, "the bounds of a number need more than {} states", kMostStates);
    }
    open_.push_back(reading);
    result_.states.push_back({.edges = {}, .accepts = ends(reading) && accepts_(facts(reading))});
    return found->second;
  }

  static bool ends(const Reading& reading) {
    // "-0" is left out, because readers disagree about whether it is an integer.
    return (reading.phase == kZero && !reading.negative) || reading.phase == kWhole ||
           reading.phase == kFraction;
  }

  void expand(std::size_t at) {
    const Reading reading = open_[at];
    spend_work(100 * (1 + reading.places.size() + reading.residues.size()));
    std::vector<Automaton::Edge> edges;
    const auto add = [&](char32_t byte, const Reading& next) {
      const int to = number_of(next);
      if (!edges.empty() && edges.back().to == to && edges.back().high + 1 == byte) {
        edges.back().high = byte;
      } else {
        edges.push_back({byte, byte, to});
      }
    };
    if (reading.phase == kStart) {
      Reading next = reading;
      next.phase = kMinus;
      next.negative = true;
      add('-', next);
    }
    if (form_.fractions && (reading.phase == kZero || reading.phase == kWhole)) {
      add('.', behind_dot(reading));
    }
    if (reading.phase != kZero) {
      for (int digit = 0; digit < 10; ++digit) {
        add(static_cast<char32_t>('0' + digit), behind_digit(reading, digit));
      }
    }
    result_.states[at].edges = std::move(edges);
  }

  Reading behind_dot(const Reading& reading) const {
    Reading next = reading;
    next.phase = kDot;
    for (std::size_t i = 0; i < next.order.size(); ++i) {
      next.order[i] = order_of_whole(reading, i);
      next.places[i] = 0;
    }
    return next;
  }

  int order_of_whole(const Reading& reading, std::size_t i) const {
    const int length = static_cast<int>(questions_.bounds[i].whole.size());
    if (reading.places[i] != length) return reading.places[i] < length ? -1 : 1;
    return reading.order[i];
  }

  Reading behind_digit(const Reading& reading, int digit) const {
    Reading next = reading;
    const bool in_fraction = reading.phase == kDot || reading.phase == kFraction;
    next.phase = in_fraction ? kFraction : kWhole;
    if (!in_fraction && digit == 0 && reading.phase != kWhole) next.phase = kZero;
    next.nonzero = reading.nonzero || digit != 0;
    next.fraction_nonzero = reading.fraction_nonzero || (in_fraction && digit != 0);
    for (std::size_t i = 0; i < next.order.size(); ++i) {
      const Decimal& bound = questions_.bounds[i];
      const std::string& part = in_fraction ? bound.fraction : bound.whole;
      const int length = static_cast<int>(part.size());
      const int place = reading.places[i];
      const int expected = place < length ? part[static_cast<std::size_t>(place)] - '0' : 0;
      if (next.order[i] == 0 && (place < length || in_fraction)) {
        next.order[i] = digit < expected ? -1 : (digit > expected ? 1 : 0);
      }
      next.places[i] = std::min(place + 1, in_fraction ? length : length + 1);
      // Where the order is settled, nothing else needs to be remembered.
      if (in_fraction && next.order[i] != 0) next.places[i] = 0;
      if (!in_fraction && next.places[i] > length) next.order[i] = 1;
    }
    for (std::size_t i = 0; i < divisors_.size(); ++i) {
      const Divisor& divisor = divisors_[i];
      if (next.decimals[i] < 0) continue;
      if (in_fraction && next.decimals[i] == divisor.decimals) {
        if (digit != 0) next.decimals[i] = -1;
        if (digit != 0) next.residues[i] = 0;
        continue;
      }
      next.residues[i] = static_cast<int>((10LL * next.residues[i] + digit) % divisor.value);
      if (in_fraction) ++next.decimals[i];
    }
    return next;
  }

  NumberFacts facts(const Reading& reading) const {
    NumberFacts facts;
    const bool in_fraction = reading.phase == kDot || reading.phase == kFraction;
    facts.whole = !reading.fraction_nonzero;
    facts.as_float = in_fraction;
    for (std::size_t i = 0; i < questions_.bounds.size(); ++i) {
      const Decimal& bound = questions_.bounds[i];
      int order = in_fraction ? reading.order[i] : order_of_whole(reading, i);
      const int compared = in_fraction ? reading.places[i] : 0;
      if (order == 0 && compared < static_cast<int>(bound.fraction.size())) order = -1;
      if (reading.negative && reading.nonzero) {
        facts.order.push_back(bound.negative ? -order : -1);
      } else {
        facts.order.push_back(bound.negative ? 1 : order);
      }
    }
    for (std::size_t i = 0; i < divisors_.size(); ++i) {
      std::int64_t residue = reading.residues[i];
      for (int d = std::max(reading.decimals[i], 0); d < divisors_[i].decimals; ++d) {
        residue = residue * 10 % divisors_[i].value;
      }
      facts.multiple.push_back(reading.decimals[i] >= 0 && residue == 0);
    }
    return facts;
  }

  // Lets every number that could end here go on with an exponent of up to two digits.
  void add_exponents() {
    const int first = static_cast<int>(result_.states.size());
    for (std::size_t i = 0; i < open_.size(); ++i) {
      const int phase = open_[i].phase;
      if (phase != kZero && phase != kWhole && phase != kFraction) continue;
      result_.states[i].edges.push_back({'E', 'E', first});
      result_.states[i].edges.push_back({'e', 'e', first});
    }
    result_.states.push_back(
        {.edges = {{'+', '+', first + 1}, {'-', '-', first + 1}, {'0', '9', first + 2}}});
    result_.states.push_back({.edges = {{'0', '9', first + 2}}});
    result_.states.push_back({.edges = {{'0', '9', first + 3}}, .accepts = true});
    result_.states.push_back({.edges = {}, .accepts = true});
  }

  const NumberQuestions& questions_;
  NumberForm form_;
  const std::function<bool(const NumberFacts&)>& accepts_;
  std::vector<Divisor> divisors_;
  std::map<Reading, int> known_;
  std::vector<Reading> open_;
  Automaton result_;
};

}  // namespace

Automaton json_numbers(const NumberQuestions& questions, NumberForm form,
                       const std::function<bool(const NumberFacts&)>& accepts) {
  return NumberMaker(questions, form, accepts).run();
}

}  // namespace bl
