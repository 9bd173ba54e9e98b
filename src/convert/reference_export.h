#pragma once
// Our measurement in the terms of ExLlamaV2's converter.

#include <string>

#include "base/json.h"
#include "convert/measurement.h"
#include "model/model_loader.h"

namespace bl {

// What measurements of ExLlamaV2 call a linear of the blocks: "model.layers.3.self_attn.q_proj",
// "model.layers.3.block_sparse_moe.w1" for the gates of all experts. Empty for linears that it does
// not know: shared experts, gates of attention.
std::string reference_name(const LoadTarget& target);

// The keys that ExLlamaV2's converter reads (-m), with all of its options for each module. An
// option's accuracy is 1 − √(predicted KL divergence), so that errors rise as those of the
// reference do, which are relative deviations of outputs; its bits are those of the files. Empty
// where the model has linears that the reference does not know. `loader` must separate linears.
Json reference_measurement_json(const ErrorMeasurement& measurement, const ModelLoader& loader);

}  // namespace bl
