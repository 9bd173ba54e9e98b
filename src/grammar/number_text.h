#pragma once
#include <functional>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/decimal.h"

namespace bl {

// What is known about a number that has been written.
struct NumberFacts {
  std::vector<int> order;       // for each bound: −1 if below it, 0 if equal, 1 if above
  std::vector<bool> multiple;   // for each divisor: whether it divides the number
  bool whole = true;            // whether it has no fraction but zeros
  bool as_float = false;        // whether readers would make a double of it
};

struct NumberQuestions {
  std::vector<Decimal> bounds{};
  std::vector<Decimal> divisors{};  // positive
};

// The JSON numbers, in bytes, for which `accepts` says so. Exponents are written only if
// `exponents`, which is possible only without questions. With `fractions` false, numbers are
// written without a fraction. Throws kLimit if that needs too many states.
struct NumberForm {
  bool fractions = true;
  bool exponents = false;
};
Automaton json_numbers(const NumberQuestions& questions, NumberForm form,
                       const std::function<bool(const NumberFacts&)>& accepts);

}  // namespace bl
