#pragma once
#include <cstdint>
#include <span>

#include "convert/device_plan.h"
#include "convert/planned_model.h"
#include "model/model_loader.h"

namespace bl {

// What a conversion will take, before it starts. Times come from a short trial on this machine and
// are right within a factor of about two.
struct ConvertEstimate {
  double measure_seconds = 0.0;
  double rate_seconds = 0.0;        // to quantize at one rate
  std::uint64_t memory = 0;         // bytes of the host, the peak of all phases
  std::uint64_t device_memory = 0;  // bytes of a card beside kept rows; 0: it computes on the host
  std::uint64_t measurement_bytes = 0;  // of measurement.json
};

struct EstimateArgs {
  const ModelLoader& loader;
  Backend& backend;
  DeviceSizes device;
  std::span<const PlannedMatrix> linears;  // of the blocks, then the head
  std::int64_t tokens = 0;                 // of the calibration, with those held out
  std::int64_t measured_tokens = 0;        // of the rows that measuring takes
  std::int64_t sensitivity_tokens = 0;     // as MeasureArgs has them
  bool may_fold = false;  // whether blocks may be folded, which takes copies as F32
  int sweeps = 0;
};

ConvertEstimate estimate_conversion(const EstimateArgs& args);

}  // namespace bl
