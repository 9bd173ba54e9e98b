#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "convert/calibration.h"
#include "engine/open_model.h"

namespace bl {

struct SelfCalibration {
  const OpenedModel& model;
  std::string source;  // what identifies the model, as ConvertArgs::source
  std::filesystem::path archs = {};
  std::string device = "cpu";       // the name of a backend
  std::uint64_t device_memory = 0;  // bytes to use at most; 0: what is free
  std::int64_t threads = 0;         // 0: physical cores
  std::int64_t rows = 0;            // besides those that are held out
  std::int64_t length = 0;          // tokens per row
  std::uint64_t seed = 0;
  std::filesystem::path work;  // the job's folder
  bool restart = false;        // whether the job in it is discarded
};

// Rows that the model itself writes (calibration_rows.h) on a device; the CPU takes a copy with 8
// bits where memory has room for one (eight_bit_model.h). It is loaded for that and freed before
// this returns. A model with a shorter context than `length` writes more and shorter rows, with as
// many tokens. Full rows are kept in `work`/calibration.json with what they were made of, so that a
// job that goes on takes the same ones and writes only those that are missing. Throws what loading
// and generate_rows() throw; kInvalidFile where that file is damaged; kInvalidArgument where `work`
// holds something else, or a job with other rows and `restart` is not given.
Calibration calibrate_from_itself(const SelfCalibration& asked);

}  // namespace bl
