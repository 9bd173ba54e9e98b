#pragma once
#include <filesystem>

#include "convert/conversion_source.h"
#include "convert_options.h"
#include "engine/open_model.h"

namespace bl {

// What `convert --format gptq` has prepared when it has read its inputs.
struct GptqConversion {
  const ConvertOptions& options;
  const OpenedModel& model;
  const ConversionJob& job;
  std::filesystem::path target;  // the folder of the converted model
};

// Throws a usage error for options that do not go with GPTQ.
void check_gptq_options(const ConvertOptions& options);

// Throws what convert_to_gptq() would throw before it computes anything.
void rehearse_gptq(const GptqConversion& conversion);

// Converts, writes the model and prints the report.
void convert_to_gptq(const GptqConversion& conversion);

}  // namespace bl
