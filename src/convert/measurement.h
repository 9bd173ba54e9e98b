#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "convert/weight_folds.h"

namespace bl {

// The loss of one linear at one width and group size, slot by slot.
struct WidthCurve {
  int bits = 0;
  std::int32_t group_size = 0;
  // [in / 32]: the loss of each run of 32 slots, per token, as Rounding::Result::slot_errors.
  std::vector<double> errors;
};

struct LinearMeasurement {
  std::string key;
  std::int64_t in = 0;
  std::int64_t out = 0;  // padded to a multiple of 32
  // By how much the KL divergence of the model's output grows per unit of this linear's loss.
  double sensitivity = 0.0;
  std::vector<WidthCurve> curves = {};
};

// What allocation knows about a model. It does not depend on the bit rate.
struct ErrorMeasurement {
  std::vector<LinearMeasurement> linears;  // of the blocks, in order
  std::int64_t tokens = 0;                 // that the losses were measured with
  std::int64_t sensitivity_tokens = 0;     // positions compared: half of MeasureArgs's
  FoldSet folds = {};                      // that the model had
};

// Whether files can hold a group of so many slots with codes of this width.
bool is_writable_group(int bits, std::int64_t slots);

// The reference's file of that name has no curves; reference_measurement_json() adds its keys.
Json to_json(const ErrorMeasurement& measurement);
// Throws kInvalidFile for other JSON. `what` names the file.
ErrorMeasurement measurement_from_json(const Json& json, const std::string& what);

}  // namespace bl
