#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/json_fwd.h"
#include "sample/sampling_params.h"

namespace bl {

// The sampling parameters and end tokens that a model's authors give for it.
struct GenerationDefaults {
  SamplingParams sampling;  // those of the command line where the authors give none
  // For requests of OpenAI's form: SamplingParams::plain() where the authors give none.
  SamplingParams request = SamplingParams::plain();
  std::vector<std::int32_t> end_tokens;  // sorted, distinct
};

// Reads generation_config.json (an object, or null where there is none) and the end tokens in
// config.json. `do_sample: false` means temperature 0. Throws kInvalidFile for a value of the wrong
// type, with `what` as the name of the file, and what validate() throws.
GenerationDefaults read_generation_defaults(const Json& generation_config, const Json& config,
                                            std::string_view what);

}  // namespace bl
