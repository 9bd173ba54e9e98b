#pragma once
// Allocation: which widths and group sizes each linear gets.

#include <cstdint>
#include <string>
#include <vector>

#include "convert/measurement.h"
#include "convert/rounded_matrix.h"

namespace bl {

struct PlannedLinear {
  std::string key;
  GroupList groups;
  double predicted_kl = 0.0;  // the linear's part of BitPlan::predicted_kl
};

struct BitPlan {
  std::vector<PlannedLinear> linears;  // as in the measurement
  double bits_per_weight = 0.0;        // scales and permutations included
  double predicted_kl = 0.0;           // Σ sensitivity · loss
  // No plan within the same bits has a smaller prediction than this (the Lagrangian's dual value).
  double bound = 0.0;
};

// Minimizes Σ sensitivity · loss over all widths that do not rise along the slots, with one group
// size per linear, subject to an average of `bits_per_weight`. For a given price of a bit each
// linear is solved exactly by dynamic programming over its slots, and the price is found by
// bisection; what the result may lose to the true optimum is bounded by `bound`. Throws
// kInvalidArgument with the range that can be reached.
BitPlan plan_bits(const ErrorMeasurement& measurement, double bits_per_weight);

}  // namespace bl
