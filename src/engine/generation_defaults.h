#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/json_fwd.h"
#include "sample/sampling_params.h"

namespace bl {

// What the authors of a model say about generating with it.
struct GenerationDefaults {
  SamplingParams sampling;
  std::vector<std::int32_t> end_tokens;  // sorted, distinct
};

// Reads generation_config.json (an object, or null where there is none) and the end tokens of
// config.json. Values of wrong types are named with `what` (kInvalidFile); `do_sample: false` means
// greedy.
GenerationDefaults read_generation_defaults(const Json& generation_config, const Json& config,
                                            std::string_view what);

}  // namespace bl
