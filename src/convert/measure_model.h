#pragma once
#include <functional>

#include "convert/block_model.h"
#include "convert/calibration.h"
#include "convert/measured_groups.h"
#include "convert/measurement.h"

namespace bl {

// How many tokens run through the model while one linear at a time is coarse, unless the user says;
// the KL divergence of the output is measured at every second one. On a host they take most of the
// time of measuring; bench/ladder/convert_sensitivities.md says what more of them gain.
std::int64_t default_sensitivity_tokens(const Backend& backend);

struct MeasureArgs {
  ModelLoader& loader;
  Backend& backend;
  const Calibration& calibration;
  std::int64_t rows = 0;  // of the calibration, from the front
  double damping = 0.01;
  std::int64_t sensitivity_tokens = 0;
  // Called with blocks done and in all; may throw to interrupt.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

// Measures each linear of the blocks: the loss at every width and group size by GPTQ, and how much
// the KL divergence of the logits grows with that loss. One block is in memory at a time. For the
// sensitivities, hidden states of one variant of the model per linear travel through the blocks:
// the model with that linear at 3 bits. Their number times `sensitivity_tokens` decides the memory.
ErrorMeasurement measure_model(const MeasureArgs& args);

}  // namespace bl
