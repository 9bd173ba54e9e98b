#pragma once
#include <cstdint>
#include <string>

#include "model/model_spec.h"

namespace bl {

// The number of tokens up to which the model was trained, as far as its config and the options say:
// max_positions, stretched by a rope scaling. INT64_MAX where nothing limits it: without learned or
// rotary positions, with a scaling that follows the length, or where the options change theta.
std::int64_t trained_length(const ModelSpec& spec, const SpecOptions& options);

// What a text of `tokens` tokens needs: "the model was trained for 2048 tokens; …" with the options
// and the key of config.json that stretch its rotary encoding. Empty if it needs nothing.
std::string rope_advice(const ModelSpec& spec, const SpecOptions& options, std::int64_t tokens);

}  // namespace bl
