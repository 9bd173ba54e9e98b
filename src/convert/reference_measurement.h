#pragma once
// The measurement.json that ExLlamaV2's converter writes and reads: for each module (attention or
// MLP of a layer) the error of some options, each of which says the widths and group sizes of all
// linears of the module.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/bit_plan.h"
#include "convert/planned_model.h"
#include "convert/rate_choice.h"

namespace bl {

// A joint choice for the linears of a module.
struct ModuleOption {
  double error = 0.0;     // 1 − accuracy: the mean relative error of the module's output
  std::int64_t bits = 0;  // of all its linears, in the file
  std::map<std::string, GroupList> groups = {};  // by the linear's key
};

struct ReferenceMeasurement {
  std::vector<std::vector<ModuleOption>> modules;
  double weights = 0.0;  // of all linears
};

// Whether the document is of that format alone. Ours has its keys, too, and says more.
bool is_reference_measurement(const Json& json);

// Reads one for a model with these linears (those without groups are the blocks'). Throws
// kInvalidFile where it is damaged or of another model. `what` names the file.
ReferenceMeasurement reference_measurement_from_json(const Json& json,
                                                     std::span<const PlannedMatrix> linears,
                                                     const std::string& what);

RateRange reachable_rates(const ReferenceMeasurement& measurement);

// Chooses one option for each module such that the average of bits is at most `bits_per_weight`. It
// minimizes Σ error^p, as the reference does, with the p of 1.5 … 3.5 whose largest error is the
// smallest; where the reference anneals, each p is solved by a price of a bit, and what is left is
// spent where it gains most per bit. Predictions of the result are no numbers, since nothing is
// known of the KL divergence. Throws kInvalidArgument with the range that can be reached.
BitPlan plan_bits(const ReferenceMeasurement& measurement, double bits_per_weight);

}  // namespace bl
