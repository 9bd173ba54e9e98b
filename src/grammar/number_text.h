#pragma once
#include <functional>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/decimal.h"

namespace bl {

// Facts about a number that has been written.
struct NumberFacts {
  std::vector<int> order;      // for each bound: −1 if below it, 0 if equal, 1 if above
  std::vector<bool> multiple;  // for each divisor: whether it divides the number
  bool whole = true;           // whether it has no fraction but zeros
  bool as_float = false;       // whether readers would make a double of it
};

struct NumberQuestions {
  std::vector<Decimal> bounds{};
  std::vector<Decimal> divisors{};  // positive
};

struct NumberForm {
  bool fractions = true;   // false: numbers are written without a fraction or exponent
  bool exponents = false;  // any exponent of up to two digits, whatever `accepts` says
};

// The JSON numbers, in bytes, for which `accepts` says so. Throws kLimit if that needs too many
// states.
Automaton json_numbers(const NumberQuestions& questions, NumberForm form,
                       const std::function<bool(const NumberFacts&)>& accepts);

// As json_numbers(), and also the numbers that are written with an exponent as programs do for very
// large and very small ones: one digit, a fraction, and an exponent below -4 or above 15. Where a
// divisor does not divide all whole numbers, these are left out.
Automaton json_numbers_with_exponents(const NumberQuestions& questions,
                                      const std::function<bool(const NumberFacts&)>& accepts);

}  // namespace bl
