#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "convert/calibration.h"
#include "convert_options.h"
#include "engine/open_model.h"
#include "ops/backend.h"

namespace bl {

// What `convert --format gptq` has prepared when it has read its inputs.
struct GptqConversion {
  const ConvertOptions& options;
  const OpenedModel& model;
  const Calibration& calibration;
  Backend& backend;
  std::filesystem::path target;  // the folder of the converted model
  std::string source;            // identifies the model's files
  std::function<void(const std::string& phase, std::int64_t done, std::int64_t total)> progress;
};

// Throws a usage error for options that do not go with GPTQ.
void check_gptq_options(const ConvertOptions& options);

// Converts, writes the model and prints the report.
void convert_to_gptq(const GptqConversion& conversion);

}  // namespace bl
