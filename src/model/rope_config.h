#pragma once
#include <string>

#include "model/arch_evaluator.h"
#include "model/arch_spec.h"
#include "model/model_spec.h"
#include "nn/rope_table.h"

namespace bl {

struct RopeConfigArgs {
  const RopeArch& arch;
  const ArchEvaluator& config;  // for the layer
  const std::string& layer_type;
  std::int64_t head_dim = 0;
  std::int64_t max_positions = 0;
  const SpecOptions& options;
};

// Reads the rotary encoding of a layer from a config in any of the known forms: `rope_theta` with
// `rope_scaling` (transformers 4), `rope_parameters` (5), or either nested by layer type. Throws
// kInvalidFile and kUnsupported.
RopeSpec read_rope(const RopeConfigArgs& args);

}  // namespace bl
